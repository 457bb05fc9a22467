"""Hook that runs in the child after a fork, on platforms that have fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def call_after_fork_in_child(action: Callable[[], None]) -> None:
    """Register `action` for the rest of the process. No-op without fork (Windows)."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(after_in_child=action)
