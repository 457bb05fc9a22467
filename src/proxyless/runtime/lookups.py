"""LookupThreads: look-ups of names by the system's resolver, which blocks, in threads of their own.

The executor of a loop is not used: it has few threads (uvloop: 4), the application may fill it, and
its look-ups keep the process from ending. Literal addresses need no look-up.

Theory of operation
    A name has at most one look-up at a time; further callers share it. A call to the system cannot
    be cancelled: it continues after its callers have given up, and counts as busy.

    Names that do not answer must not delay those that do. So a look-up starts only if fewer
    threads are busy than the limit for its kind of name: the fewest for a name whose last look-up
    was slow, more for a new name, and still more for one that answered in time. `localhost` always
    has a thread. Look-ups above their limit wait, in the order of their requests.
"""

from __future__ import annotations

import logging
import socket
import time
from enum import Enum
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from proxyless.runtime.daemon_threads import DaemonThreads
from proxyless.runtime.forks import one_per_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LOGGER: Final = logging.getLogger("proxyless.resolver.dns")

# Limits; docs/limits.md explains them.
LOOKUP_THREADS_MAX: Final = 64
# A look-up that takes longer is slow.
SLOW_LOOKUP_S: Final = 1.0
# Names whose last look-up is remembered as slow or not. Past this the oldest is removed.
REMEMBERED_NAMES_MAX: Final = 1024
# The largest DNS message has room for this many A records.
ADDRESSES_PER_NAME_MAX: Final = 4096


class NameKind(Enum):
    """Kinds of names, by their last look-up. Those that may use more threads come first."""

    LOCAL = "localhost"
    ANSWERED = "answered in time"
    NEW = "not looked up yet"
    SLOW = "slow"


# A look-up starts if fewer threads than this are busy.
BUSY_MAX: Final[Mapping[NameKind, int]] = {
    NameKind.LOCAL: LOOKUP_THREADS_MAX + 1,
    NameKind.ANSWERED: LOOKUP_THREADS_MAX,
    NameKind.NEW: LOOKUP_THREADS_MAX * 3 // 4,
    NameKind.SLOW: LOOKUP_THREADS_MAX // 2,
}

_LOCAL_NAMES: Final = frozenset({"localhost", "localhost."})

# The distinct addresses of a name in the system's order, or the error.
Answer = list[str] | OSError


class _Lookup:
    """The look-up of one name, waiting or running, and its callers' callbacks."""

    __slots__ = ("callbacks", "kind", "name")

    def __init__(self, name: str, kind: NameKind) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.callbacks: dict[Callable[[Answer], None], None] = {}


class LookupThreads:
    """Look-ups that wait or run, and their threads. May be used by any thread."""

    def __init__(
        self,
        resolve: Callable[[str], Answer] | None = None,
        *,
        busy_max: Mapping[NameKind, int] = BUSY_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        # Fixed at construction.
        self._resolve = resolve or resolve_by_system
        self._busy_max = busy_max
        self._now_s = now_s
        self._threads = DaemonThreads(
            "proxyless-dns", "look-ups of names", threads_max=max(busy_max.values())
        )
        # Changed by every thread that holds the lock.
        self._lock = Lock()
        self.busy = 0
        self._lookups: dict[str, _Lookup] = {}
        self._waiting: dict[NameKind, dict[str, _Lookup]] = {kind: {} for kind in NameKind}
        self._was_slow: dict[str, bool] = {}
        # Names of which too many addresses were logged.
        self._truncated: set[str] = set()

    @property
    def waiting(self) -> int:
        """Number of look-ups that have no thread yet."""
        return sum(map(len, self._waiting.values()))

    def look_up(self, name: str, callback: Callable[[Answer], None]) -> Callable[[], None]:
        """Call back once, in another thread, or inside this call if no thread can be started.

        Returns a function that cancels this request, unless the callback is running already.
        """
        with self._lock:
            lookup = self._lookups.get(name)
            if lookup is None:
                lookup = self._lookups[name] = _Lookup(name, self._kind_of(name))
                self._waiting[lookup.kind][name] = lookup
            lookup.callbacks[callback] = None
            refused = self._start_waiting()
        for each in refused:
            _answer(each, socket.gaierror(socket.EAI_AGAIN, "no thread could be started"))
        return partial(self._cancel, lookup, callback)

    def _cancel(self, lookup: _Lookup, callback: Callable[[Answer], None]) -> None:
        with self._lock:
            lookup.callbacks.pop(callback, None)
            waiting = self._waiting[lookup.kind]
            if not lookup.callbacks and waiting.get(lookup.name) is lookup:
                del waiting[lookup.name], self._lookups[lookup.name]

    def _kind_of(self, name: str) -> NameKind:
        if name.lower() in _LOCAL_NAMES:
            return NameKind.LOCAL
        match self._was_slow.get(name):
            case None:
                return NameKind.NEW
            case was_slow:
                return NameKind.SLOW if was_slow else NameKind.ANSWERED

    # Called with the lock

    def _start_waiting(self) -> list[_Lookup]:
        """Start what the limits allow; returns look-ups that got no thread."""
        refused = []
        while (lookup := self._take()) is not None:
            try:
                self._threads.post(partial(self._run, lookup))
            except RuntimeError:
                self.busy -= 1
                del self._lookups[lookup.name]
                refused.append(lookup)
        return refused

    def _take(self) -> _Lookup | None:
        """The next look-up that the limits allow, which counts as busy from now on."""
        for kind, waiting in self._waiting.items():
            if waiting and self.busy < self._busy_max[kind]:
                self.busy += 1
                return waiting.pop(next(iter(waiting)))
        return None

    def _remember(self, name: str, *, was_slow: bool) -> None:
        self._was_slow.pop(name, None)
        self._was_slow[name] = was_slow
        if len(self._was_slow) > REMEMBERED_NAMES_MAX:
            del self._was_slow[next(iter(self._was_slow))]

    # Called in a thread of the pool

    def _run(self, lookup: _Lookup) -> None:
        following: _Lookup | None = lookup
        while following is not None:
            lookup = following
            began_s = self._now_s()
            answer = self._look_up(lookup.name)
            with self._lock:
                del self._lookups[lookup.name]
                self._remember(lookup.name, was_slow=self._now_s() - began_s >= SLOW_LOOKUP_S)
                self.busy -= 1
                following = self._take()
            _answer(lookup, answer)

    def _look_up(self, name: str) -> Answer:
        try:
            answer = self._resolve(name)
        except BaseException as error:
            _LOGGER.exception("look-up of %r raised", name)
            return OSError(f"look-up raised {error!r}")
        if isinstance(answer, OSError) or len(answer) <= ADDRESSES_PER_NAME_MAX:
            return answer
        self._log_truncation(name)
        return answer[:ADDRESSES_PER_NAME_MAX]

    def _log_truncation(self, name: str) -> None:
        if name not in self._truncated and len(self._truncated) < REMEMBERED_NAMES_MAX:
            self._truncated.add(name)
            text = "name %r has more than %d addresses: the others are not used"
            _LOGGER.warning(text, name, ADDRESSES_PER_NAME_MAX)


def _answer(lookup: _Lookup, answer: Answer) -> None:
    # No callback is added from here on, but a caller may cancel one.
    for callback in list(lookup.callbacks):
        callback(answer)


def resolve_by_system(name: str) -> Answer:
    """Look a name up. Blocks. Returns one address more than the limit if there are more."""
    try:
        if "\0" in name:
            raise ValueError("the system would look up what is before the NUL")
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except ValueError:  # UnicodeError is raised by the IDNA codec, before the look-up.
        return socket.gaierror(socket.EAI_NONAME, f"host {name!r} is not a valid name")
    distinct: dict[str, None] = {}
    for *_, sockaddr in found:
        distinct[str(sockaddr[0])] = None
        if len(distinct) > ADDRESSES_PER_NAME_MAX:
            break
    return list(distinct)


lookup_threads: Final = one_per_process(LookupThreads)
