"""Log of one control plane: each text once; texts about its silence; the trace of responses.

Specs: A57 (failure modes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Status, one_line
from proxyless.xds.client.notifications import LOGGER

if TYPE_CHECKING:
    from proxyless.base import Trace
    from proxyless.xds.client import codec
    from proxyless.xds.client.response import Outcome

# Times after which the text about a silent server changes. Each change is published to every
# watcher, so there are few.
_SILENCES: Final = ((60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (86_400.0, "1 day"))
# Number of different warnings that are logged per server, and per outage of it.
_WARNINGS_MAX: Final = 16


class ServerLog:
    """Texts that were logged about one server, so that each is logged once."""

    __slots__ = ("nacks", "reasons", "warnings")

    def __init__(self) -> None:
        # Reasons of this outage, warnings about the server, and the last NACK of each type.
        self.reasons: set[str] = set()
        self.warnings: set[str] = set()
        self.nacks: dict[str, str] = {}

    def log_nack(self, outcome: Outcome) -> None:
        """Log a NACK, unless the last response of this type had the same one."""
        if outcome.error and outcome.error != self.nacks.get(outcome.type_url):
            LOGGER.warning("%s", outcome.error)
        self.nacks[outcome.type_url] = outcome.error


def warn_once(text: str, logged: set[str]) -> None:
    if text not in logged and len(logged) < _WARNINGS_MAX:
        logged.add(text)
        LOGGER.warning("%s", text)


def trace_response(
    trace: Trace, server: str, response: codec.DiscoveryResponse, error: str
) -> None:
    trace.emit(
        "xds.response",
        server=server,
        type_url=response.type_url,
        resources=len(response.resources),
        version=response.version,
        nonce=response.nonce,
        error=error,
    )


def reason_of(failure: Status) -> str:
    return one_line(failure.details or failure.code.name)


def longer_silence_s(silent_s: float) -> float | None:
    """The next time after which the text changes; None if it does not change any more."""
    return next((each_s for each_s, _ in _SILENCES if each_s > silent_s), None)


def describe_silence(silent_s: float) -> str:
    # Differences of times are rounded, hence the millisecond.
    passed = [text for least_s, text in _SILENCES if silent_s > least_s - 0.001]
    return f"has not answered for over {passed[-1]}" if passed else "does not answer"
