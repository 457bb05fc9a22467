"""Endpoints of outlier_detection: RPC counters, ejection state, and subchannel wrappers.

Specs: A50 "Subchannel Wrapper", in the form of A61: an endpoint has counters and an ejection state,
and its subchannels publish the ejection as health.

The policy reads the counters and sets the ejection state. A subchannel belongs to the endpoint that
lists its address, or to the first of several.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from proxyless.base import Address, Endpoint, State, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.lb.api import CallEnd, Cancel, StateListener, Subchannel
from proxyless.lb.forwarding import ForwardingSubchannel

EJECTED: Final = "ejected by outlier detection"


@frozen
class EjectionState:
    """Ejection time and ejection time multiplier of an endpoint."""

    # None: not ejected.
    ejected_at_s: float | None = None
    multiplier: int = 0

    @property
    def is_ejected(self) -> bool:
        return self.ejected_at_s is not None


NEVER_EJECTED: Final = EjectionState()


@frozen
class EndpointView:
    """Input of the sweep: RPCs of one endpoint in the last interval, and its ejection state."""

    successes: int
    failures: int
    ejection: EjectionState = NEVER_EJECTED

    @property
    def volume(self) -> int:
        return self.successes + self.failures


class CountedEndpoint:
    """Counters and ejection state of one endpoint."""

    __slots__ = ("addresses", "ejection", "failures", "reason", "successes")

    def __init__(self, addresses: frozenset[Address]) -> None:
        # Fixed at construction.
        self.addresses: Final = addresses
        # Since the last sweep.
        self.successes = 0
        self.failures = 0
        # Set by the policy.
        self.ejection = NEVER_EJECTED
        self.reason = ""

    def take_counts(self) -> EndpointView:
        """Return the counters and the ejection state, and reset the counters."""
        view = EndpointView(self.successes, self.failures, self.ejection)
        # On one loop, this is equivalent to swapping the buckets of A50.
        self.successes = self.failures = 0
        return view

    def __str__(self) -> str:
        return ",".join(sorted(map(str, self.addresses)))


class AttemptCounter:
    """Tracker of one subchannel: counts attempts for its endpoint."""

    __slots__ = ("endpoint",)

    def __init__(self, endpoint: CountedEndpoint | None) -> None:
        # Changed by the index. An attempt counts for the endpoint at its end.
        self.endpoint = endpoint

    def on_start(self) -> None:
        return

    def on_end(self, end: CallEnd) -> None:
        endpoint = self.endpoint
        if endpoint is None:
            return
        if end.status.code is StatusCode.OK:
            endpoint.successes += 1
        else:
            endpoint.failures += 1


class OutlierSubchannel(ForwardingSubchannel):
    """Subchannel of the child: counts its attempts, and is unhealthy while it is ejected."""

    __slots__ = ("_on_release", "_watches", "counter", "listed_address")

    def __init__(
        self,
        inner: Subchannel,
        listed_address: Address,
        endpoint: CountedEndpoint | None,
        on_release: "Callable[[OutlierSubchannel], None]",
    ) -> None:
        self.counter: Final = AttemptCounter(endpoint)
        super().__init__(inner, self.counter)
        # The requested address, which may differ from the subchannel's own.
        self.listed_address: Final = listed_address
        self._on_release: Final = on_release
        self._watches: dict[_HealthWatch, None] = {}

    def watch_health(self, listener: StateListener) -> Cancel:
        watch = _HealthWatch(listener)
        self._watches[watch] = None
        # Before `start`, so that the watch has the health of the inner subchannel.
        cancel_inner = self.inner.watch_health(watch.on_health)
        watch.start(self._ejection_status)

        def cancel() -> None:
            self._watches.pop(watch, None)
            cancel_inner()

        return cancel

    def release(self) -> None:
        self._watches.clear()
        # Breaks the reference cycle between the result and its subchannel.
        self.clear_results()
        self._on_release(self)
        self.inner.release()

    def update_health(self) -> None:
        """Publish a change of the ejection state to the health watches. Idempotent."""
        for watch in tuple(self._watches):
            # A listener may cancel other watches.
            if watch in self._watches:
                watch.update_health(self._ejection_status)

    @property
    def _ejection_status(self) -> Status | None:
        """Health status of an ejected subchannel; None if it is not ejected."""
        endpoint = self.counter.endpoint
        if endpoint is None or not endpoint.ejection.is_ejected:
            return None
        return Status(StatusCode.UNAVAILABLE, f"{EJECTED}: {endpoint.reason}")


class _HealthWatch:
    """Health watch that forwards the inner subchannel's health unless the endpoint is ejected."""

    __slots__ = ("_is_forwarding", "_latest", "_listener")

    def __init__(self, listener: StateListener) -> None:
        self._listener: Final = listener
        # The health of the inner subchannel.
        self._latest: tuple[State, Status] | None = None
        # False during an ejection ("will stop passing along updates from the underlying
        # subchannel" - A50), and before `start`.
        self._is_forwarding = False

    def on_health(self, state: State, status: Status) -> None:
        self._latest = (state, status)
        if self._is_forwarding:
            self._listener(state, status)

    def start(self, ejection_status: Status | None) -> None:
        """Publish the initial health."""
        if ejection_status is None:
            self._start_forwarding()
        else:
            self._eject(ejection_status)

    def update_health(self, ejection_status: Status | None) -> None:
        """Publish the health if the endpoint was ejected or unejected."""
        if self._is_forwarding and ejection_status is not None:
            self._eject(ejection_status)
        elif not self._is_forwarding and ejection_status is None:
            self._start_forwarding()

    def _eject(self, status: Status) -> None:
        self._is_forwarding = False
        self._listener(State.TRANSIENT_FAILURE, status)

    def _start_forwarding(self) -> None:
        self._is_forwarding = True
        assert self._latest is not None, "`watch_health` calls the listener at once"
        self._listener(*self._latest)


class EndpointIndex:
    """Listed endpoints, and the subchannels of the child, by address."""

    __slots__ = ("_by_address", "_endpoints", "_subchannels")

    def __init__(self) -> None:
        # From the last update.
        self._endpoints: dict[frozenset[Address], CountedEndpoint] = {}
        self._by_address: dict[Address, CountedEndpoint] = {}
        # All subchannels that are not released, even if their address is not listed any more.
        self._subchannels: dict[Address, dict[OutlierSubchannel, None]] = {}

    @property
    def endpoints(self) -> Iterable[CountedEndpoint]:
        return self._endpoints.values()

    @property
    def subchannels(self) -> list[OutlierSubchannel]:
        return [each for group in self._subchannels.values() for each in group]

    @property
    def is_empty(self) -> bool:
        """Whether there are no subchannels."""
        return not self._subchannels

    def replace_endpoints(self, listed: Iterable[Endpoint]) -> list[CountedEndpoint]:
        """Replace the list; listed endpoints keep their state. Returns the removed endpoints.

        The caller must then call `update_health` of all subchannels.
        """
        before, self._endpoints = self._endpoints, {}
        self._by_address = {}
        for each in listed:
            key = each.key
            if key not in self._endpoints:
                self._add_endpoint(before.pop(key) if key in before else CountedEndpoint(key))
        for subchannel in self.subchannels:
            subchannel.counter.endpoint = self._by_address.get(subchannel.listed_address)
        return list(before.values())

    def add_subchannel(self, inner: Subchannel, address: Address) -> OutlierSubchannel:
        endpoint = self._by_address.get(address)
        subchannel = OutlierSubchannel(inner, address, endpoint, self._on_release)
        self._subchannels.setdefault(address, {})[subchannel] = None
        return subchannel

    def subchannels_of(self, endpoint: CountedEndpoint) -> Iterator[OutlierSubchannel]:
        """Iterate over the endpoint's subchannels, which the loop body may release."""
        for address in endpoint.addresses:
            for subchannel in tuple(self._subchannels.get(address, ())):
                if subchannel.counter.endpoint is endpoint:
                    yield subchannel

    def _add_endpoint(self, endpoint: CountedEndpoint) -> None:
        self._endpoints[endpoint.addresses] = endpoint
        for address in endpoint.addresses:
            self._by_address.setdefault(address, endpoint)

    def _on_release(self, subchannel: OutlierSubchannel) -> None:
        same_address = self._subchannels[subchannel.listed_address]
        del same_address[subchannel]
        if not same_address:
            del self._subchannels[subchannel.listed_address]
