"""PollingResolver: base class of resolvers that poll, such as for a file.

`poll` must not block. What may block (a name service, a remote disk) belongs in a task, as in
`dns`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from proxyless.base import Status, StatusCode, one_line
from proxyless.resolver.api import ResolverResult
from proxyless.runtime import IDLE_TIMER, Soon

if TYPE_CHECKING:
    from proxyless.base import Endpoint
    from proxyless.resolver.api import ResolverListener
    from proxyless.runtime import Clock

LOGGER: Final = logging.getLogger("proxyless.resolver")


class PollingResolver(ABC):
    """Calls `poll` at regular intervals, and its listener with each change."""

    def __init__(self, listener: ResolverListener, clock: Clock, interval_s: float) -> None:
        # Fixed at construction.
        self._listener = listener
        self._clock = clock
        self._interval_s = interval_s
        # The last result that could be used, and the last exception that was logged.
        self._found: tuple[Endpoint, ...] | Status | None = None
        self._last_bug: Status | None = None
        self._poll_soon = Soon(clock, self._poll)
        self._timer = IDLE_TIMER

    @abstractmethod
    def poll(self) -> tuple[Endpoint, ...]:
        """The current endpoints. May raise OSError or ValueError."""

    def start(self) -> None:
        self._poll_soon.request()

    def request_reresolution(self) -> None:
        return  # It polls anyway.

    def reset_backoff(self) -> None:
        return  # There is no backoff.

    def close(self) -> None:
        self._poll_soon.cancel()
        self._timer.cancel()

    def _poll(self) -> None:
        # First: the listener may close the resolver.
        self._timer = self._clock.call_later(self._interval_s, self._poll)
        found: tuple[Endpoint, ...] | Status
        try:
            found = self.poll()
        except (OSError, ValueError) as error:
            found = Status(StatusCode.UNAVAILABLE, one_line(str(error)))
        except Exception as error:
            found = self._on_bug(error)
        if found != self._found:
            status = self._listener.on_result(ResolverResult(found))
            # A result that could not be used is reported again.
            self._found = found if status.is_ok else None

    def _on_bug(self, error: Exception) -> Status:
        """The status that RPCs fail with. The same exception is logged once."""
        bug = Status(StatusCode.UNAVAILABLE, one_line(f"resolver raised {error!r}"))
        if bug != self._last_bug:
            self._last_bug = bug
            LOGGER.exception("resolver raised")
        return bug
