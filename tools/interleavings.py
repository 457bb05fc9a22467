"""In how many orders of events were the promises kept?

Two stories: changes of the mesh that overlap, with RPCs running (tests/sim/tear_orders.py), and
priorities that flap (tests/sim/priority_orders.py). `make interleavings` tells them in every order
that tests/sim has no time for; `--depth 7` chooses how far. Exit code 1 if something did not hold,
with the shortest order in which it did not.
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

# What takes a minute or two. After 15 steps of the first no state is new; of the second, each step
# more takes about three times as long.
STORIES = {
    "tear": (tear_orders.tell, 15),
    "priority flapping": (priority_orders.tell, 6),
}


def show(name: str, found: Exploration) -> str:
    """One line, and one more for each order in which something did not hold."""
    lines = [f"{name}: {found}"]
    lines += [f"  violation: {violation}" for violation in found.violations]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tools.interleavings", description=__doc__)
    parser.add_argument("--depth", type=int, help="steps per order; each story has its own")
    parser.add_argument("--only", choices=list(STORIES), help="tell only this story")
    settings = parser.parse_args(arguments)
    failed = False
    for name, (tell, usual_depth) in STORIES.items():
        if settings.only in {None, name}:
            with quiet():
                found = explore(tell, usual_depth if settings.depth is None else settings.depth)
            print(show(name, found), flush=True)
            failed = failed or bool(found.violations)
    return int(failed)


@contextmanager
def quiet() -> Iterator[None]:
    """Resources are lost on purpose here: what the stack has to say about that is not news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


if __name__ == "__main__":
    sys.exit(main())
