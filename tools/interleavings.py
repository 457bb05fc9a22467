"""Runs two small scenarios in every order of events, deeper than the tests do.

The scenarios: overlapping changes of the mesh, with RPCs running (tests/sim/tear_orders.py), and
flapping priorities (tests/sim/priority_orders.py). `--depth 7` is the number of steps per order.
Exit code 1 if a rule was violated, with the shortest order that violates it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sim import priority_orders, tear_orders
from tools.simulation.explore import Exploration, explore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Default depths, for a run of a minute or two. After 15 steps the first has no new states; each
# further step of the second takes about three times as long.
SCENARIOS = {
    "tear": (tear_orders.run_story, 15),
    "priority flapping": (priority_orders.run_story, 6),
}


def show(name: str, found: Exploration) -> str:
    """One line, and one more for each violation."""
    lines = [f"{name}: {found}"]
    lines += [f"  violation: {violation}" for violation in found.violations]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tools.interleavings", description=__doc__)
    parser.add_argument("--depth", type=int, help="steps per order; default: one per scenario")
    parser.add_argument("--only", choices=list(SCENARIOS), help="run only this scenario")
    settings = parser.parse_args(arguments)
    failed = False
    for name, (scenario, default_depth) in SCENARIOS.items():
        if settings.only in {None, name}:
            with quiet():
                found = explore(
                    scenario, default_depth if settings.depth is None else settings.depth
                )
            print(show(name, found), flush=True)
            failed = failed or bool(found.violations)
    return int(failed)


@contextmanager
def quiet() -> Iterator[None]:
    """Disable logging: the scenarios lose resources on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


if __name__ == "__main__":
    sys.exit(main())
