"""The system's Chromium, and the options that disable its background activity.

For tests of the demo's page and for its pictures. playwright uses this browser and downloads none.
"""

import shutil
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    # Containers have no user namespaces, and only our own page is opened.
    "--no-sandbox",
)
MISSING: Final = "there is no Chromium: apt-get install chromium"


def find_chromium() -> str | None:
    """Its path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)
