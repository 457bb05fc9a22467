"""Pause of garbage collection while modules are imported.

Almost all that an import creates stays, and the collector visits it several times: a tenth of the
time until the first RPC of a process.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disable the collector for the block, unless the application has done it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
