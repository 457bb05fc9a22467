"""Blocks and commands of the pages that are not run, with the reasons.

Every other block is run. A block or command that is neither run nor listed fails the test, and so
does an unused line of these tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.docs.pages import Block

# By language.
PICTURES = {"mermaid": "a picture, rendered by the forge"}

# By page and the beginning of the block.
NOT_RUN: dict[tuple[str, str], str] = {
    ("docs/howto/write-a-policy.md", "backoff of 10.0.0.1:80 is not reset"): (
        "tests/unit/testing/test_check_policy.py compares it"
    ),
    ("docs/first-hour.md", "$ python3 -m venv"): "tests/e2e/test_first_hour.py runs its commands",
    ("docs/first-hour.md", "# a typo in client.py"): "tests/e2e/test_first_hour.py makes them",
    ("docs/style.md", 'good  listener "orders"'): "texts of both kinds, to show the style",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """Commands whose targets and options are checked, but that are not run."""

    pattern: re.Pattern[str]
    reason: str


def _checked(pattern: str, reason: str) -> Checked:
    return Checked(re.compile(pattern), reason)


# A test checks that .ci/run starts the long ones.
CHECKED: tuple[Checked, ...] = (
    _checked(r"make (test|check|demo|conformance|sim|env)\b", "minutes: .ci/run runs it"),
    _checked(
        r"make (bench|bench-all|bench-xds|bench-scale|fuzz)\b", "minutes: its script has tests"
    ),
    _checked(
        r"(\S*python) (-m )?bench[./](all|churn|rpc|scale|serve_clients|soak|delta|page)\b",
        "minutes: tests/bench tests it",
    ),
    _checked(
        r"(\S*python) bench/(observed|slow_backend|cold_backend)\.py\b",
        "a minute: docs/performance.md has its results",
    ),
    _checked(r"(\S*python) -m tools\.simulation --seeds\b", "minutes: .ci/run runs 120 seeds"),
    _checked(
        r"(\S*python) -m tools\.simulation --seed \d+ --", "seconds: tests/unit/tools tests it"
    ),
    _checked(r"\S*coverage run\b", "as long as all tests"),
    _checked(r"(\S*pip|python3? -m pip) install\b", "from the network: tests/e2e/test_wheel.py"),
    _checked(r"go -C examples/go-control-plane run\b", "tests/interop/test_go_control_plane.py"),
)


def reason_not_run(block: Block) -> str | None:
    if block.language in PICTURES:
        return PICTURES[block.language]
    return next((reason for key, reason in NOT_RUN.items() if is_listed(block, key)), None)


def is_listed(block: Block, key: tuple[str, str]) -> bool:
    page, beginning = key
    return block.page == page and block.text.startswith(beginning)


def reason_only_checked(command: str) -> str | None:
    return next((each.reason for each in CHECKED if each.pattern.match(command)), None)
