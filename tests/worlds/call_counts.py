"""Counts of function calls, which are the same on every machine."""

import sys
from collections.abc import Callable
from types import FrameType


def count_calls(action: Callable[[], object]) -> int:
    """The number of functions of this package that the action calls."""
    calls = 0

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_globals.get("__name__", "").startswith("proxyless."):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls
