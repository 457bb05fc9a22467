"""Where is Chromium, and how is it started so that it is still and asks nobody anything?

For tests of the demo's page and for its pictures. playwright drives the browser that the system
has: it downloads none.
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
    # A container has no user namespaces, and it opens no page but ours.
    "--no-sandbox",
)
MISSING: Final = "there is no Chromium: apt-get install chromium"


def find_chromium() -> str | None:
    """Its path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)
