"""Which address is tried when?

Specs: A61 (Happy Eyeballs), A62 (sticky TRANSIENT_FAILURE), RFC 8305.

Pure: `order_addresses` says in which order addresses are tried; `Pass` is told what happens and
says what to do. Connecting, timers and reports are the policy's.

Theory of operation
    A pass starts on one address after the other: on the next one when the delay is over or when
    the address it started on last has failed. Earlier attempts go on meanwhile; the first reached
    address that is READY is selected. A connection that another policy shares is selected when
    the pass reaches its address, not before: the order of the list decides (D47). When every
    address has failed since the pass reached it, the pass is over, and from then on each address
    that is IDLE, as it is after its backoff, is connected again at once. That never ends by itself.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Final

from proxyless.base import Address, Attributes, Endpoint, IpAddress, State
from proxyless.base.frozen import frozen

# An address to try, and what is known about its endpoint.
Target = tuple[Address, Attributes]

CONNECTION_ATTEMPT_DELAY_S: Final = 0.25
CONNECTION_ATTEMPT_DELAY_MIN_S: Final = 0.1
CONNECTION_ATTEMPT_DELAY_MAX_S: Final = 2.0
# Tries one address at a time, as it was before A61.
NO_OVERLAP_S: Final = float("inf")


def attempt_delay_s(configured_s: float | None) -> float:
    """The delay to use, if this one was configured."""
    if configured_s is None:
        return CONNECTION_ATTEMPT_DELAY_S
    if configured_s == NO_OVERLAP_S:
        return NO_OVERLAP_S
    return min(
        max(configured_s, CONNECTION_ATTEMPT_DELAY_MIN_S),
        CONNECTION_ATTEMPT_DELAY_MAX_S,
    )


# ---------------------------------------------------------------------------------------------
# The order of addresses


def order_addresses(endpoints: Iterable[Endpoint]) -> tuple[Target, ...]:
    """All addresses, each one once, in the order in which to try them."""
    targets: dict[Address, Attributes] = {}
    for endpoint in endpoints:
        for address in endpoint.addresses:
            targets.setdefault(address, endpoint.attributes)
    return _interleave(targets.items())


def _interleave(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Alternate between families, so that one that does not work at all costs little."""
    families: dict[str, list[Target]] = {}
    for target in targets:
        families.setdefault(_family(target[0]), []).append(target)
    rounds = zip_longest(*families.values())
    return tuple(target for targets in rounds for target in targets if target is not None)


def _family(address: Address) -> str:
    return address.family if isinstance(address, IpAddress) else "other"


# ---------------------------------------------------------------------------------------------
# The pass


@frozen
class Connect:
    """Request a connection to this address."""

    index: int


@frozen
class Select:
    """Use this address, it is READY. The pass has nothing to say after this."""

    index: int


class Signal(Enum):
    """What else there is to do."""

    BEGUN = "an attempt is under way"
    START_DELAY = "attempt the next address when the delay is over, counted from now"
    STOP_DELAY = "the delay does not matter any more"
    ALL_FAILED = "every address has failed"
    ALL_FAILED_AGAIN = "as many failures again as there are addresses"


Action = Connect | Select | Signal


class Pass:
    """One pass over the addresses, and all attempts after it.

    Driven by the policy: `begin` once, then each change of an address and each end of a delay.
    Takes the same time however many addresses there are, except where it goes over several.
    """

    __slots__ = ("_failures", "_has_failed", "_reached", "_states", "_under_way", "_unfailed")

    def __init__(self, states: Sequence[State], under_way: Collection[int] = ()) -> None:
        assert states, "a policy without addresses has nothing to try"
        self._states = list(states)
        # Addresses that the policy's previous pass reached, and that are CONNECTING since then.
        self._under_way = set(under_way)
        # How many addresses the pass has started on, from the front.
        self._reached = 0
        # Which of them have failed since then, and how many of all have not.
        self._has_failed = [False] * len(states)
        self._unfailed = len(states)
        # How many failures there were since the pass was over.
        self._failures = 0

    @property
    def is_over(self) -> bool:
        """Whether every address has failed."""
        return self._unfailed == 0

    def is_awaited(self, index: int) -> bool:
        """Whether this address is selected as soon as it is READY."""
        return index < self._reached or index in self._under_way

    @property
    def under_way(self) -> Collection[int]:
        """Addresses that are selected as soon as they are READY, and CONNECTING now."""
        connecting = (i for i, state in enumerate(self._states) if state is State.CONNECTING)
        return tuple(filter(self.is_awaited, connecting))

    def begin(self) -> list[Action]:
        actions = self._attempt_next()
        is_settled = self.is_over or isinstance(actions[0], Select)
        return actions if is_settled else [Signal.BEGUN, *actions]

    def on_delay_over(self) -> list[Action]:
        return self._attempt_next()

    def on_state(self, index: int, state: State) -> list[Action]:
        self._states[index] = state
        match state:
            case State.READY:
                return [Select(index)] if self.is_awaited(index) else []
            case State.TRANSIENT_FAILURE:
                return self._on_failure(index)
            case State.IDLE if self._is_wanted(index):
                return [Connect(index)]
            case State.IDLE:
                self._under_way.discard(index)
                return []
            case _:
                return []

    def _is_wanted(self, index: int) -> bool:
        """Whether an address that has become IDLE is to be connected at once."""
        # One that was reached and gave up without failing would otherwise never be over.
        return self.is_over or (index < self._reached and not self._has_failed[index])

    def _on_failure(self, index: int) -> list[Action]:
        if self.is_over:
            self._failures += 1
            return [] if self._failures % len(self._states) else [Signal.ALL_FAILED_AGAIN]
        if index >= self._reached:
            self._under_way.discard(index)
            return []  # It will be asked again when the pass gets there.
        self._note_failure(index)
        is_latest = index == self._reached - 1
        return self._attempt_next() if is_latest else self._finish_if_all_failed()

    def _note_failure(self, index: int) -> None:
        if not self._has_failed[index]:
            self._has_failed[index] = True
            self._unfailed -= 1

    def _attempt_next(self) -> list[Action]:
        """Start on the next address that is not failing already; select it if it is READY."""
        while self._reached < len(self._states):
            index = self._reached
            self._reached += 1
            if self._states[index] is State.TRANSIENT_FAILURE:
                self._note_failure(index)
                continue
            if self._states[index] is State.READY:
                return [Select(index)]
            is_last = self._reached == len(self._states)
            delay = Signal.STOP_DELAY if is_last else Signal.START_DELAY
            # One that is CONNECTING already, for somebody else, is as good as requested.
            is_idle = self._states[index] is State.IDLE
            return [Connect(index), delay] if is_idle else [delay]
        return [Signal.STOP_DELAY, *self._finish_if_all_failed()]

    def _finish_if_all_failed(self) -> list[Action]:
        if not self.is_over:
            return []
        idle = (index for index, state in enumerate(self._states) if state is State.IDLE)
        return [Signal.ALL_FAILED, *map(Connect, idle)]
