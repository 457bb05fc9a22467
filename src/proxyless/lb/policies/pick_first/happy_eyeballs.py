"""Happy Eyeballs: the order of addresses, and when each is attempted.

Specs: A61 (Happy Eyeballs), A62 (sticky TRANSIENT_FAILURE), RFC 8305.

Pure: `order_addresses` orders the addresses; `Pass` maps events to actions, which the policy
performs.

Theory of operation
    A pass attempts the addresses in order. It moves on to the next one when the delay is over, or
    when the latest attempted address has failed; earlier attempts continue. The first attempted
    address that is READY is selected. A connection that another policy shares is selected only when
    the pass reaches its address: the order of the list decides (D47). When every address has failed
    since the pass reached it, the pass is over. From then on each address that becomes IDLE, after
    its backoff, is connected again at once, indefinitely.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Final

from proxyless.base import Address, Attributes, Endpoint, IpAddress, State
from proxyless.base.frozen import frozen

# An address, and the attributes of its endpoint.
Target = tuple[Address, Attributes]

CONNECTION_ATTEMPT_DELAY_S: Final = 0.25
CONNECTION_ATTEMPT_DELAY_MIN_S: Final = 0.1
CONNECTION_ATTEMPT_DELAY_MAX_S: Final = 2.0
# Attempts one address at a time, as before A61.
NO_OVERLAP_S: Final = float("inf")


def attempt_delay_s(configured_s: float | None) -> float:
    """Clamp the configured delay; None means the default."""
    if configured_s is None:
        return CONNECTION_ATTEMPT_DELAY_S
    if configured_s == NO_OVERLAP_S:
        return NO_OVERLAP_S
    delay_s = max(configured_s, CONNECTION_ATTEMPT_DELAY_MIN_S)
    return min(delay_s, CONNECTION_ATTEMPT_DELAY_MAX_S)


def order_addresses(endpoints: Iterable[Endpoint]) -> tuple[Target, ...]:
    """Return all addresses without duplicates, in the order of attempts."""
    targets: dict[Address, Attributes] = {}
    for endpoint in endpoints:
        for address in endpoint.addresses:
            targets.setdefault(address, endpoint.attributes)
    # Usual below per-endpoint policies (A61), of which there are thousands.
    return _interleave(targets.items()) if len(targets) > 1 else tuple(targets.items())


def _interleave(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Alternate between address families, so that a broken family delays connecting little."""
    families: dict[str, list[Target]] = {}
    for target in targets:
        families.setdefault(_family(target[0]), []).append(target)
    rounds = zip_longest(*families.values())
    return tuple(target for targets in rounds for target in targets if target is not None)


def _family(address: Address) -> str:
    return address.family if isinstance(address, IpAddress) else "other"


@frozen
class Connect:
    """Request a connection to the address at this index."""

    index: int


@frozen
class Select:
    """Use the address at this index, which is READY. The last action of a pass."""

    index: int


class Signal(Enum):
    """Action without an address."""

    STARTED = "an attempt is in progress"
    START_DELAY = "start the delay before the attempt of the next address"
    STOP_DELAY = "cancel the delay"
    ALL_FAILED = "every address has failed"
    ALL_FAILED_AGAIN = "as many failures again as there are addresses"


Action = Connect | Select | Signal


class Pass:
    """State machine of one pass over the addresses, and of all attempts after it.

    The policy calls `begin` once, then `on_state` and `on_delay_over`. The cost of a call does not
    depend on the number of addresses, unless it skips several.
    """

    __slots__ = ("_failures", "_has_failed", "_in_progress", "_reached", "_states", "_unfailed")

    def __init__(self, states: Sequence[State], in_progress: Collection[int] = ()) -> None:
        assert states, "a policy without addresses has nothing to try"
        self._states = list(states)
        # Addresses that the previous pass attempted, and that are still CONNECTING.
        self._in_progress = set(in_progress)
        # The number of addresses that the pass has reached.
        self._reached = 0
        # Whether each address has failed since it was reached, and the number that has not.
        self._has_failed = [False] * len(states)
        self._unfailed = len(states)
        # The number of failures since the pass was over.
        self._failures = 0

    @property
    def is_over(self) -> bool:
        """Whether every address has failed since it was reached."""
        return self._unfailed == 0

    def is_eligible(self, index: int) -> bool:
        """Whether the address is selected when it becomes READY."""
        return index < self._reached or index in self._in_progress

    @property
    def in_progress(self) -> Collection[int]:
        """Eligible addresses that are CONNECTING."""
        connecting = (i for i, state in enumerate(self._states) if state is State.CONNECTING)
        return tuple(filter(self.is_eligible, connecting))

    def begin(self) -> list[Action]:
        actions = self._attempt_next()
        is_settled = self.is_over or (actions and isinstance(actions[0], Select))
        return actions if is_settled else [Signal.STARTED, *actions]

    def on_delay_over(self) -> list[Action]:
        return self._attempt_next()

    def on_state(self, index: int, state: State) -> list[Action]:
        self._states[index] = state
        match state:
            case State.CONNECTING:
                return []
            case State.READY:
                return [Select(index)] if self.is_eligible(index) else []
            case State.TRANSIENT_FAILURE:
                return self._on_failure(index)
            case State.IDLE if self._reconnects_at_once(index):
                return [Connect(index)]
            case State.IDLE:
                self._in_progress.discard(index)
                return []
            case _:
                return []

    def _reconnects_at_once(self, index: int) -> bool:
        """Whether an address that became IDLE is connected again at once."""
        # If a reached address became IDLE without failing, the pass would otherwise never end.
        return self.is_over or (index < self._reached and not self._has_failed[index])

    def _on_failure(self, index: int) -> list[Action]:
        if self.is_over:
            self._failures += 1
            return [] if self._failures % len(self._states) else [Signal.ALL_FAILED_AGAIN]
        if index >= self._reached:
            self._in_progress.discard(index)
            return []  # The pass attempts it later.
        self._record_failure(index)
        is_latest = index == self._reached - 1
        return self._attempt_next() if is_latest else self._finish_if_all_failed()

    def _record_failure(self, index: int) -> None:
        if not self._has_failed[index]:
            self._has_failed[index] = True
            self._unfailed -= 1

    def _attempt_next(self) -> list[Action]:
        """Attempt the next address that is not in backoff; select it if it is READY."""
        while self._reached < len(self._states):
            index = self._reached
            self._reached += 1
            if self._states[index] is State.TRANSIENT_FAILURE:
                self._record_failure(index)
                continue
            if self._states[index] is State.READY:
                return [Select(index)]
            # A shared subchannel may be CONNECTING already.
            actions: list[Action] = [Connect(index)] if self._states[index] is State.IDLE else []
            if self._reached < len(self._states):
                actions.append(Signal.START_DELAY)
            elif index:  # No delay has been started before the first address.
                actions.append(Signal.STOP_DELAY)
            return actions
        return [Signal.STOP_DELAY, *self._finish_if_all_failed()]

    def _finish_if_all_failed(self) -> list[Action]:
        if not self.is_over:
            return []
        idle = (index for index, state in enumerate(self._states) if state is State.IDLE)
        return [Signal.ALL_FAILED, *map(Connect, idle)]
