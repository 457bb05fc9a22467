"""watch_stalls: reports times in which the loop of this process did not run."""

from __future__ import annotations

import asyncio
import time  # noqa: TID251 - a watch on real time
from typing import TYPE_CHECKING, Final

from tools.fuzz_mesh.records import Stall

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT_S: Final = 0.05
STALL_S: Final = 0.3


async def watch_stalls(report: Callable[[Stall], None]) -> None:
    """Until it is cancelled."""
    while True:
        before_s, cpu_s = time.monotonic(), time.process_time()
        await asyncio.sleep(BEAT_S)  # noqa: TID251 - on real time
        after_s = time.monotonic()
        if after_s - before_s > STALL_S:
            report(Stall(before_s, after_s, time.process_time() - cpu_s))
