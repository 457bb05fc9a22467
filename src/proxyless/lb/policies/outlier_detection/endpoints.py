"""How did an endpoint's RPCs end, and which subchannels must know that it is ejected?

Specs: A50 "Subchannel Wrapper", in the form of A61: endpoints have counts and a standing, and their
subchannels report it as health. Used by outlier_detection.

Counts and standing are for whoever sweeps to read and to set; here they are kept in the right
place while endpoints, subchannels and watches come and go. A subchannel belongs to the endpoint
that lists its address; if there are several, to the first.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from proxyless.base import Address, Endpoint, State, Status, StatusCode
from proxyless.lb.api import (
    CallEnd,
    Cancel,
    StateListener,
    Subchannel,
)
from proxyless.lb.forwarding import ForwardingSubchannel
from proxyless.lb.policies.outlier_detection.algorithms import NEVER_EJECTED, EndpointView

EJECTED: Final = "ejected by outlier detection"


class CountedEndpoint:
    """One endpoint. Driven by the RPCs that end on its subchannels, and by the sweep."""

    __slots__ = ("addresses", "failures", "reason", "standing", "successes")

    def __init__(self, addresses: frozenset[Address]) -> None:
        # Fixed at construction.
        self.addresses: Final = addresses
        # Since the last sweep.
        self.successes = 0
        self.failures = 0
        # The sweep's to set: the standing, and why it is what it is.
        self.standing = NEVER_EJECTED
        self.reason = ""

    def take_view(self) -> EndpointView:
        """What the sweep may know. Counting starts again."""
        view = EndpointView(self.successes, self.failures, self.standing)
        # On one loop, zeroing is all there is to swapping the buckets of A50.
        self.successes = self.failures = 0
        return view

    def __str__(self) -> str:
        return ",".join(sorted(map(str, self.addresses)))


class Counter:
    """Counts attempts on one subchannel for its endpoint, if it has one. Driven by attempts."""

    __slots__ = ("endpoint",)

    def __init__(self, endpoint: CountedEndpoint | None) -> None:
        # Changed by the roster; an attempt counts for the one that is right when it ends.
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
    """A subchannel of the child's. Driven by the child, the roster, and the health below."""

    __slots__ = ("_on_release", "_watches", "counter", "listed_as")

    def __init__(
        self,
        inner: Subchannel,
        listed_as: Address,
        endpoint: CountedEndpoint | None,
        on_release: "Callable[[OutlierSubchannel], None]",
    ) -> None:
        self.counter: Final = Counter(endpoint)
        super().__init__(inner, self.counter)
        # The address that was asked for: a subchannel may know it by another name.
        self.listed_as: Final = listed_as
        self._on_release: Final = on_release
        self._watches: dict[_HealthWatch, None] = {}

    def watch_health(self, listener: StateListener) -> Cancel:
        watch = _HealthWatch(listener)
        self._watches[watch] = None
        # First what is below, so that there is something to return to.
        cancel_inner = self.inner.watch_health(watch.on_health)
        watch.start(self._ejected_because)

        def cancel() -> None:
            self._watches.pop(watch, None)
            cancel_inner()

        return cancel

    def release(self) -> None:
        self._watches.clear()
        # It refers to us: a circle that somebody would have to find.
        self.forget_result()
        self._on_release(self)
        self.inner.release()

    def follow(self) -> None:
        """Let the health watches say what the standing of the endpoint is. Idempotent."""
        for watch in tuple(self._watches):
            # What one of them is told may be the end of others, or of all.
            if watch in self._watches:
                watch.follow(self._ejected_because)

    @property
    def _ejected_because(self) -> Status | None:
        """Why it is ejected; None if it is not."""
        endpoint = self.counter.endpoint
        if endpoint is None or not endpoint.standing.is_ejected:
            return None
        return Status(StatusCode.UNAVAILABLE, f"{EJECTED}: {endpoint.reason}")


class _HealthWatch:
    """One watch: what is true below, unless the endpoint is ejected.

    Driven by the subchannel below and by the one around it.
    """

    __slots__ = ("_is_passing_on", "_latest", "_listener")

    def __init__(self, listener: StateListener) -> None:
        self._listener: Final = listener
        # What was told from below.
        self._latest: tuple[State, Status] | None = None
        # "will stop passing along updates from the underlying subchannel" - A50. Nor is anything
        # passed on before it is known whether the endpoint is ejected.
        self._is_passing_on = False

    def on_health(self, state: State, status: Status) -> None:
        self._latest = (state, status)
        if self._is_passing_on:
            self._listener(state, status)

    def start(self, ejected_because: Status | None) -> None:
        """Tell the first state."""
        if ejected_because is None:
            self._pass_on()
        else:
            self._eject(ejected_because)

    def follow(self, ejected_because: Status | None) -> None:
        """Tell what has changed: nothing, if the standing is what it was."""
        if self._is_passing_on and ejected_because is not None:
            self._eject(ejected_because)
        elif not self._is_passing_on and ejected_because is None:
            self._pass_on()

    def _eject(self, because: Status) -> None:
        self._is_passing_on = False
        self._listener(State.TRANSIENT_FAILURE, because)

    def _pass_on(self) -> None:
        self._is_passing_on = True
        assert self._latest is not None, "a subchannel tells its health as soon as it is watched"
        self._listener(*self._latest)


class Roster:
    """Who is listed, and which subchannels there are. Driven by the policy and its child."""

    __slots__ = ("_by_address", "_endpoints", "_subchannels")

    def __init__(self) -> None:
        # From the last update.
        self._endpoints: dict[frozenset[Address], CountedEndpoint] = {}
        # Derived from those.
        self._by_address: dict[Address, CountedEndpoint] = {}
        # All that were added and not released yet, whether they are listed or not.
        self._subchannels: dict[Address, dict[OutlierSubchannel, None]] = {}

    @property
    def endpoints(self) -> Iterable[CountedEndpoint]:
        return self._endpoints.values()

    @property
    def subchannels(self) -> list[OutlierSubchannel]:
        return [each for some in self._subchannels.values() for each in some]

    @property
    def is_empty(self) -> bool:
        """Whether there is no subchannel."""
        return not self._subchannels

    def replace_endpoints(self, listed: Iterable[Endpoint]) -> list[CountedEndpoint]:
        """Keep those that are listed, start with those that are new; returns the others.

        Subchannels count for their new endpoints at once; they are to `follow` soon.
        """
        before, self._endpoints = self._endpoints, {}
        self._by_address = {}
        for each in listed:
            key = each.key
            if key not in self._endpoints:
                self._add_endpoint(before.pop(key) if key in before else CountedEndpoint(key))
        for subchannel in self.subchannels:
            subchannel.counter.endpoint = self._by_address.get(subchannel.listed_as)
        return list(before.values())

    def add_subchannel(self, inner: Subchannel, address: Address) -> OutlierSubchannel:
        endpoint = self._by_address.get(address)
        subchannel = OutlierSubchannel(inner, address, endpoint, self._on_release)
        self._subchannels.setdefault(address, {})[subchannel] = None
        return subchannel

    def subchannels_of(self, endpoint: CountedEndpoint) -> Iterator[OutlierSubchannel]:
        """Those of all its addresses; some may be released while one goes through them."""
        for address in endpoint.addresses:
            for subchannel in tuple(self._subchannels.get(address, ())):
                if subchannel.counter.endpoint is endpoint:
                    yield subchannel

    def _add_endpoint(self, endpoint: CountedEndpoint) -> None:
        self._endpoints[endpoint.addresses] = endpoint
        for address in endpoint.addresses:
            self._by_address.setdefault(address, endpoint)

    def _on_release(self, subchannel: OutlierSubchannel) -> None:
        same_address = self._subchannels[subchannel.listed_as]
        del same_address[subchannel]
        if not same_address:
            del self._subchannels[subchannel.listed_as]
