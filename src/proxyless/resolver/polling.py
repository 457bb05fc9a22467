"""How does a resolver find out that has nobody to tell it?

It looks again and again, and its listener hears of what is new. Looking must not block: what may
(a name service, a remote disk) belongs into a task, as in `dns`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from proxyless.base import Status, StatusCode, one_line
from proxyless.resolver.api import ResolverResult
from proxyless.runtime import IDLE_TIMER

if TYPE_CHECKING:
    from proxyless.base import Endpoint
    from proxyless.resolver.api import ResolverListener
    from proxyless.runtime import Clock

LOGGER: Final = logging.getLogger("proxyless.resolver")


class PollingResolver(ABC):
    """Looks at something at regular times. Driven by its owner and a timer."""

    def __init__(self, listener: ResolverListener, clock: Clock, interval_s: float) -> None:
        # Fixed at construction.
        self._listener = listener
        self._clock = clock
        self._interval_s = interval_s
        # From the last look, and what was logged last.
        self._found: tuple[Endpoint, ...] | Status | None = None
        self._bug: Status | None = None
        self._timer = IDLE_TIMER

    @abstractmethod
    def look(self) -> tuple[Endpoint, ...]:
        """What is there now. An OSError or a ValueError says why that cannot be told."""

    def start(self) -> None:
        # The listener is never called inside a call to the resolver.
        self._timer = self._clock.call_later(0, self._look)

    def request_reresolution(self) -> None:
        """It looks again soon anyway."""
        return

    def reset_backoff(self) -> None:
        """There is no wait to cut short."""
        return

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        # First: the listener may close the resolver.
        self._timer = self._clock.call_later(self._interval_s, self._look)
        found: tuple[Endpoint, ...] | Status
        try:
            found = self.look()
        except (OSError, ValueError) as error:
            found = Status(StatusCode.UNAVAILABLE, one_line(str(error)))
        except Exception as error:
            found = self._on_bug(error)
        if found != self._found:
            status = self._listener.on_result(ResolverResult(found))
            # What could not be used is told again, as if it were new.
            self._found = found if status.is_ok else None

    def _on_bug(self, error: Exception) -> Status:
        """RPCs that wait for ever would tell nobody. Logged once, however often it comes back."""
        bug = Status(StatusCode.UNAVAILABLE, one_line(f"resolver raised {error!r}"))
        if bug != self._bug:
            self._bug = bug
            LOGGER.exception("resolver raised")
        return bug
