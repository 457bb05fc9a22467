"""Generator of the tables in docs/howto/metrics.md, from the list of instruments.

    python -m tools.metrics_page            rewrite the tables
    python -m tools.metrics_page --check    only compare

A comment before each table names the prefixes of its metrics; an instrument is in the first table
that fits.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.metrics.instruments import INSTRUMENTS

if TYPE_CHECKING:
    from proxyless.metrics import Instrument

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "howto" / "metrics.md"

HEAD: Final = "| metric | kind | unit | labels | what |\n|---|---|---|---|---|\n"
TABLE: Final = re.compile(r"<!-- metrics: (.*?) -->\n(?:\|.*\n)*")


def format_row(instrument: Instrument) -> str:
    labels = [f"`{each}`" for each in instrument.labels]
    labels += [f"(`{each}`)" for each in instrument.optional_labels]
    kind = f"{instrument.kind.value}*" if instrument.is_default else instrument.kind.value
    what = instrument.description.removesuffix(".")
    cells = (f"`{instrument.name}`", kind, f"`{instrument.unit}`", ", ".join(labels), what)
    return f"| {' | '.join(cells)} |\n"


def format_page(text: str) -> str:
    """The page with new tables. Raises ValueError if an instrument is in none of them."""
    left = list(INSTRUMENTS)

    def make_table(found: re.Match[str]) -> str:
        prefixes = tuple(found[1].split())
        rows = [each for each in left if each.name.startswith(prefixes)]
        left[:] = [each for each in left if each not in rows]
        return f"<!-- metrics: {found[1]} -->\n{HEAD}{''.join(map(format_row, rows))}"

    page = TABLE.sub(make_table, text)
    if left:
        raise ValueError(f"metric {left[0].name!r} is in no table of {PAGE.relative_to(ROOT)}")
    return page


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare the page")
    options = parser.parse_args(arguments)
    text, name = PAGE.read_text(), PAGE.relative_to(ROOT)
    page = format_page(text)
    if not options.check:
        PAGE.write_text(page)
        print(f"wrote {name}")
    elif page != text:
        print(f"{name} is not up to date: run python -m tools.metrics_page", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
