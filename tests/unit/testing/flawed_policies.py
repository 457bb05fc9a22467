"""One policy that keeps every rule, and many that break exactly one.

`Sound` has a subchannel per address, and sends RPCs to the READY ones in turn. Each flawed policy
is `Sound` with one realistic mistake.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Address,
    Attributes,
    State,
    Status,
    StatusCode,
    ValidationErrors,
)
from proxyless.lb import (
    QUEUE,
    QUEUE_PICKER,
    Complete,
    Fail,
    FailPicker,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    Policy,
    PolicyRegistry,
    Subchannel,
    Update,
)
from proxyless.lb.forwarding import ForwardingHelper, ForwardingSubchannel
from proxyless.lb.policies.pick_first import PickFirstConfig, PickFirstPolicy
from proxyless.runtime import IDLE_TIMER, system_random
from proxyless.testing import FakeSubchannel, Rule

FAILURE: Final = State.TRANSIENT_FAILURE
NO_ENDPOINTS: Final = Status(StatusCode.UNAVAILABLE, "no endpoints")


@dataclass(frozen=True)
class PolicyKind:
    """Factory of one of these policies."""

    make: Callable[[Helper], Policy]
    config: object = None

    @property
    def name(self) -> str:
        return getattr(self.make, "__name__", "flawed")

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return self.config

    def create(self, helper: Helper) -> Policy:
        return self.make(helper)


class AnyOf(Picker):
    """Picks the subchannels in turn."""

    def __init__(self, subchannels: list[Subchannel]) -> None:
        self._results = [Complete(each) for each in subchannels]
        self._next = 0

    def pick(self, info: PickInfo) -> PickResult:
        self._next += 1
        return self._results[self._next % len(self._results)]


class Sound:
    """Keeps every rule."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper
        self.subchannels: dict[Address, Subchannel] = {}
        self.states: dict[Address, State] = {}
        # Addresses that failed and were not READY since.
        self.failed: set[Address] = set()
        self.error = OK
        self.is_held = False
        self.published: object = None

    def update(self, update: Update) -> Status:
        if isinstance(update.endpoints, Status):
            return self.on_error(update.endpoints)
        listed = dict.fromkeys(address for each in update.endpoints for address in each.addresses)
        self.is_held = True
        for address in [each for each in self.subchannels if each not in listed]:
            self.drop(address)
        self.add_all([address for address in listed if address not in self.subchannels])
        self.is_held = False
        return self.on_updated() if listed else self.on_empty_list()

    def on_error(self, error: Status) -> Status:
        if not self.subchannels:
            self.report(FAILURE, FailPicker(error))
        return error

    def on_empty_list(self) -> Status:
        self.report(FAILURE, FailPicker(NO_ENDPOINTS))
        return NO_ENDPOINTS

    def on_updated(self) -> Status:
        self.reconsider()
        return OK

    def add_all(self, addresses: list[Address]) -> None:
        for address in addresses:
            self.add(address)

    def add(self, address: Address) -> None:
        subchannel = self.helper.create_subchannel(address, EMPTY_ATTRIBUTES)
        self.subchannels[address] = subchannel
        subchannel.watch(partial(self.on_state, address))

    def drop(self, address: Address) -> None:
        self.subchannels.pop(address).release()
        self.states.pop(address)
        self.failed.discard(address)

    def on_state(self, address: Address, state: State, error: Status) -> None:
        before = self.states.get(address)
        self.states[address] = state
        if state is State.READY:
            self.failed.discard(address)
        elif before is State.READY:
            self.on_lost()
        if state is FAILURE:
            self.error = error
            self.failed.add(address)
            self.on_failed()
        if state is State.IDLE:
            self.reconnect(address)
        self.reconsider()

    def on_lost(self) -> None:
        self.helper.request_reresolution()

    def on_failed(self) -> None:
        self.helper.request_reresolution()

    def reconnect(self, address: Address) -> None:
        self.subchannels[address].request_connection()

    def is_usable(self, address: Address) -> bool:
        return self.states[address] is State.READY

    def is_failed(self, address: Address) -> bool:
        return address in self.failed

    def reconsider(self) -> None:
        if self.is_held:
            return
        usable = [address for address in self.subchannels if self.is_usable(address)]
        published: object = tuple(usable)
        if usable:
            state, picker = State.READY, self.make_picker(usable)
        elif all(map(self.is_failed, self.subchannels)):
            state, picker, published = FAILURE, self.make_fail_picker(), self.error
        else:
            state, picker = State.CONNECTING, QUEUE_PICKER
        if self.published != (state, published):
            self.report(state, picker)
            self.published = (state, published)

    def make_picker(self, usable: list[Address]) -> Picker:
        return AnyOf([self.subchannels[address] for address in usable])

    def make_fail_picker(self) -> Picker:
        return FailPicker(self.error)

    def report(self, state: State, picker: Picker) -> None:
        self.published = None
        self.helper.update_state(state, picker)

    def exit_idle(self) -> None:
        return

    def reset_backoff(self) -> None:
        for subchannel in self.subchannels.values():
            subchannel.reset_backoff()

    def close(self) -> None:
        for address in list(self.subchannels):
            self.drop(address)


# ---------------------------------------------------------------------------------------------
# Pickers


class PicksTooEarly(Sound):
    def is_usable(self, address: Address) -> bool:
        return self.states[address] in {State.READY, State.CONNECTING}


class KeepsStalePicker(Sound):
    def on_state(self, address: Address, state: State, error: Status) -> None:
        self.is_held = self.states.get(address) is State.READY
        super().on_state(address, state, error)
        self.is_held = False


class ForgetsToReportRemoval(Sound):
    def on_updated(self) -> Status:
        if self.published is None or len(self.subchannels) > 1:
            self.reconsider()
        return OK


class StopsWatching(Sound):
    def add(self, address: Address) -> None:
        subchannel = self.helper.create_subchannel(address, EMPTY_ATTRIBUTES)
        self.subchannels[address] = subchannel

        def listener(state: State, error: Status) -> None:
            self.on_state(address, state, error)
            if state is State.READY:
                cancel()

        cancel = subchannel.watch(listener)


class NeverWatches(Sound):
    def add(self, address: Address) -> None:
        self.subchannels[address] = self.helper.create_subchannel(address, EMPTY_ATTRIBUTES)
        self.states[address] = State.READY


class KeepsWhatWorks(Sound):
    """Keeps usable subchannels that are not listed any more."""

    keeps = False

    def update(self, update: Update) -> Status:
        self.keeps = bool(update.endpoints)
        return super().update(update)

    def drop(self, address: Address) -> None:
        if not (self.keeps and self.is_usable(address)):
            super().drop(address)

    def close(self) -> None:
        self.keeps = False
        super().close()


class IgnoresHealth(Sound):
    def add(self, address: Address) -> None:
        super().add(address)
        self.subchannels[address].watch_health(lambda *_: None)


class LeaksWrappedSubchannel(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        return AnyOf([ForwardingSubchannel(self.subchannels[address]) for address in usable])


class ConnectsInPick(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        inner, others = super().make_picker(usable), list(self.subchannels.values())

        class ConnectingPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                for each in others:
                    each.request_connection()
                return inner.pick(info)

        return ConnectingPicker()


class AsksInPick(Sound):
    def make_fail_picker(self) -> Picker:
        helper, inner = self.helper, super().make_fail_picker()

        class AskingPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                helper.request_reresolution()
                return inner.pick(info)

            @property
            def status(self) -> Status:
                return inner.status

        return AskingPicker()


class HidesFailure(Sound):
    def make_fail_picker(self) -> Picker:
        return QUEUE_PICKER


class ReportsShutdown(Sound):
    def on_empty_list(self) -> Status:
        self.report(State.SHUTDOWN, FailPicker(NO_ENDPOINTS))
        return NO_ENDPOINTS


class PicksNothing(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        class EmptyPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                return None  # type: ignore[return-value]

        return EmptyPicker()


class FailsWithOk(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        class OkPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                return Fail(OK)

        return OkPicker()


# ---------------------------------------------------------------------------------------------
# Reports


class ReportsForEachEndpoint(Sound):
    def add(self, address: Address) -> None:
        self.report(State.CONNECTING, QUEUE_PICKER)
        super().add(address)


class ReportsTooOften(Sound):
    def on_failed(self) -> None:
        super().on_failed()
        for _ in range(2):
            self.report(FAILURE, self.make_fail_picker())


class SaysNothingAtFirst(Sound):
    def report(self, state: State, picker: Picker) -> None:
        if state is not State.CONNECTING:
            super().report(state, picker)


class ForgetsFailure(Sound):
    def is_failed(self, address: Address) -> bool:
        return self.states[address] is FAILURE


# ---------------------------------------------------------------------------------------------
# Updates


class AcceptsEmptyList(Sound):
    def on_empty_list(self) -> Status:
        super().on_empty_list()
        return OK


class WaitsForEndpoints(Sound):
    def on_empty_list(self) -> Status:
        self.report(State.CONNECTING, QUEUE_PICKER)
        return NO_ENDPOINTS


class QueuesWithoutEndpoints(Sound):
    def on_empty_list(self) -> Status:
        class SilentPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                return QUEUE

            @property
            def status(self) -> Status:
                return NO_ENDPOINTS

        self.report(FAILURE, SilentPicker())
        return NO_ENDPOINTS


class AcceptsError(Sound):
    def on_error(self, error: Status) -> Status:
        super().on_error(error)
        return OK


class HidesResolverError(Sound):
    def on_error(self, error: Status) -> Status:
        if not self.subchannels:
            self.report(FAILURE, FailPicker(NO_ENDPOINTS))
        return error


class FailsOnError(Sound):
    def on_error(self, error: Status) -> Status:
        self.report(FAILURE, FailPicker(error))
        return error


class DropsOnError(Sound):
    def on_error(self, error: Status) -> Status:
        super().on_error(error)
        for address in [each for each in self.subchannels if not self.is_usable(each)]:
            self.drop(address)
        return error


class QueuesOnError(Sound):
    def on_error(self, error: Status) -> Status:
        super().on_error(error)
        if any(map(self.is_usable, self.subchannels)):
            self.report(State.READY, QUEUE_PICKER)
        return error


class RefusesHalfway(Sound):
    """Rejects IPv6 addresses after it has used them."""

    def on_updated(self) -> Status:
        self.reconsider()
        is_mixed = any("fd00" in str(address) for address in self.subchannels)
        return Status(StatusCode.UNAVAILABLE, "no IPv6") if is_mixed else OK


class RefusesTooLate(Sound):
    """Rejects a list without a previous endpoint after it has used it."""

    def update(self, update: Update) -> Status:
        before = set(self.subchannels)
        status = super().update(update)
        is_all_new = before and self.subchannels and not before.intersection(self.subchannels)
        return Status(StatusCode.UNAVAILABLE, "too much at once") if is_all_new else status


# ---------------------------------------------------------------------------------------------
# Effects


class NeverAsks(Sound):
    def on_lost(self) -> None:
        return

    def on_failed(self) -> None:
        return


class AsksOnlyOnLoss(Sound):
    def on_failed(self) -> None:
        return


class AsksOnlyOnFailure(Sound):
    def on_lost(self) -> None:
        return


class StaysIdle(PickFirstPolicy):
    def exit_idle(self) -> None:
        return


class SleepsThroughPicks(PickFirstPolicy):
    def _exit_idle_soon(self) -> None:
        return


class KeepsBackoff(Sound):
    def reset_backoff(self) -> None:
        return


class ResetsTheFirst(Sound):
    def reset_backoff(self) -> None:
        for subchannel in list(self.subchannels.values())[:1]:
            subchannel.reset_backoff()


class GivesUp(Sound):
    def reconnect(self, address: Address) -> None:
        if address not in self.failed:
            super().reconnect(address)


class ReleasesTwice(Sound):
    def drop(self, address: Address) -> None:
        subchannel = self.subchannels[address]
        super().drop(address)
        subchannel.release()


class UsesReleased(Sound):
    def drop(self, address: Address) -> None:
        subchannel = self.subchannels[address]
        super().drop(address)
        subchannel.request_connection()


class ActsAtOnce(Sound):
    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        helper.update_state(State.IDLE, QUEUE_PICKER)


class StartsTimerAtOnce(Sound):
    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        helper.context.clock.call_later(1, self.close)


class RecursesThroughFailures(Sound):
    """Creates the next subchannel inside the notification of the previous one's state."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.untried: list[Address] = []

    def add_all(self, addresses: list[Address]) -> None:
        self.untried = addresses
        self.add_next()

    def add_next(self) -> None:
        if self.untried:
            self.add(self.untried.pop(0))

    def on_state(self, address: Address, state: State, error: Status) -> None:
        if self.states.get(address) is None:
            self.add_next()
        super().on_state(address, state, error)


class NestsPickers(Sound):
    """Also picks with the previous picker."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.picker: Picker = QUEUE_PICKER

    def make_picker(self, usable: list[Address]) -> Picker:
        newest, before = super().make_picker(usable), self.picker

        class NestedPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                before.pick(info)
                return newest.pick(info)

        self.picker = NestedPicker()
        return self.picker


class Raises(Sound):
    def reset_backoff(self) -> None:
        raise KeyError("a")


class RaisesForUncommonList(Sound):
    """Raises for a list that occurs in random walks only."""

    def update(self, update: Update) -> Status:
        if "fd00::6" in str(update.endpoints):
            raise ValueError("f6 is too much")
        return super().update(update)


class RaisesInCreate(Sound):
    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        raise OSError("no such file")


class SwallowsEverything(PicksTooEarly):
    def reconsider(self) -> None:
        try:
            super().reconsider()
        except AssertionError:
            return


class DrawsByItself(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        start = system_random().randrange(len(usable))
        return super().make_picker(usable[start:] + usable[:start])


# ---------------------------------------------------------------------------------------------
# The end


class KeepsSubchannel(Sound):
    def close(self) -> None:
        for address in list(self.subchannels)[1:]:
            self.drop(address)


class KeepsTimer(Sound):
    def on_lost(self) -> None:
        super().on_lost()
        self.helper.context.clock.call_later(3600, self.reset_backoff)


class ReportsAtTheEnd(Sound):
    def close(self) -> None:
        super().close()
        self.report(FAILURE, FailPicker(NO_ENDPOINTS))


class WakesUpAtTheEnd(PickFirstPolicy):
    """Does not cancel the connection that a pick before `close` has scheduled."""

    def close(self) -> None:
        wake, self._exit_idle_timer = self._exit_idle_timer, IDLE_TIMER
        super().close()
        self._exit_idle_timer = wake


class WakesUpAfterTheEnd(Sound):
    def make_picker(self, usable: list[Address]) -> Picker:
        helper, inner = self.helper, super().make_picker(usable)

        class WakingPicker(Picker):
            def pick(self, info: PickInfo) -> PickResult:
                helper.context.clock.call_later(0, helper.request_reresolution)
                return inner.pick(info)

        return WakingPicker()


# ---------------------------------------------------------------------------------------------
# Parents


class SoundParent(ForwardingHelper):
    """Forwards every call to its child, a pick_first."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        factory = helper.context.registry.find("pick_first")
        assert factory is not None
        self.child = factory.create(self)

    def update(self, update: Update) -> Status:
        return self.child.update(update)

    def exit_idle(self) -> None:
        self.child.exit_idle()

    def reset_backoff(self) -> None:
        self.child.reset_backoff()

    def close(self) -> None:
        self.child.close()


class ConnectsInReport(SoundParent):
    def update_state(self, state: State, picker: Picker) -> None:
        super().update_state(state, picker)
        if state is State.IDLE:
            self.child.exit_idle()


class ResetsInRequest(SoundParent):
    def request_reresolution(self) -> None:
        super().request_reresolution()
        self.child.reset_backoff()


class ForgetsChild(SoundParent):
    """Releases the child's subchannels without closing the child."""

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.created: list[Subchannel] = []

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        self.created.append(super().create_subchannel(address, attributes))
        return self.created[-1]

    def close(self) -> None:
        for subchannel in self.created:
            assert isinstance(subchannel, FakeSubchannel)
            if not subchannel.is_released:
                subchannel.release()


class ClosesChildTwice(SoundParent):
    def close(self) -> None:
        self.child.close()
        self.child.close()


# ---------------------------------------------------------------------------------------------
# Configs


class CarelessKind(PolicyKind):
    """Does not validate its config."""

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return str(json["zone"]).lower()


class DestructiveKind(PolicyKind):
    """Changes its config."""

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        assert isinstance(json, dict)
        return json.pop("zone", None)


class PickyKind(PolicyKind):
    """Requires a field in its config."""

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if "zone" not in json:
            errors.add("has no zone")
        return None


def kind_of(make: Callable[[Helper], Policy]) -> PolicyKind:
    is_pick_first = isinstance(make, type) and issubclass(make, PickFirstPolicy | SoundParent)
    return PolicyKind(make, PickFirstConfig() if is_pick_first else None)


# The broken rule, the policy that breaks it, and a part of the error text.
FLAWED: Final[tuple[tuple[Rule, Callable[[Helper], Policy], str], ...]] = (
    (Rule.READY_PICKS, PicksTooEarly, "10.0.0.2:80, which is CONNECTING"),
    (Rule.READY_PICKS, KeepsStalePicker, "which is IDLE"),
    (Rule.READY_PICKS, ForgetsToReportRemoval, "which was released"),
    (Rule.READY_PICKS, StopsWatching, "which is IDLE"),
    (Rule.READY_PICKS, NeverWatches, "which the policy never watched"),
    (Rule.READY_PICKS, IgnoresHealth, "the health of which is TRANSIENT_FAILURE"),
    (Rule.READY_PICKS, SwallowsEverything, "which is CONNECTING"),
    (Rule.LISTED_PICKS, KeepsWhatWorks, "which is not listed"),
    (Rule.OWN_SUBCHANNELS, LeaksWrappedSubchannel, "ForwardingSubchannel"),
    (Rule.PICKS_CHANGE_NOTHING, ConnectsInPick, "requests a connection of 10.0.0.1:80 during"),
    (Rule.PICKS_CHANGE_NOTHING, AsksInPick, "requests re-resolution during a pick"),
    (Rule.HONEST_REPORTS, HidesFailure, "reports TRANSIENT_FAILURE with the status OK"),
    (Rule.HONEST_REPORTS, ReportsShutdown, "reports SHUTDOWN"),
    (Rule.HONEST_REPORTS, PicksNothing, "pick gives None"),
    (Rule.HONEST_REPORTS, FailsWithOk, "pick fails with the status OK"),
    (Rule.REPORTS_PER_CALL, ReportsForEachEndpoint, "reports CONNECTING once more"),
    (Rule.REPORTS_PER_CALL, ReportsTooOften, "reports TRANSIENT_FAILURE once more"),
    (Rule.REPORTS_PER_CALL, SaysNothingAtFirst, "does not report after its first update"),
    (Rule.STICKY_FAILURE, ForgetsFailure, "reports CONNECTING"),
    (Rule.EMPTY_LIST, AcceptsEmptyList, "update gives OK"),
    (Rule.EMPTY_LIST, WaitsForEndpoints, "policy is CONNECTING"),
    (Rule.EMPTY_LIST, QueuesWithoutEndpoints, "pick gives Queue()"),
    (Rule.RESOLVER_ERROR, AcceptsError, "update gives OK"),
    (Rule.RESOLVER_ERROR, HidesResolverError, "not with 'still nothing'"),
    (Rule.REFUSED_UPDATE, FailsOnError, "goes from CONNECTING to TRANSIENT_FAILURE"),
    (Rule.REFUSED_UPDATE, DropsOnError, "has other subchannels"),
    (Rule.REFUSED_UPDATE, QueuesOnError, "no pick completes any more"),
    (Rule.REFUSED_UPDATE, RefusesHalfway, "policy is CONNECTING, wanted TRANSIENT_FAILURE"),
    (Rule.REFUSED_UPDATE, RefusesTooLate, "has other subchannels"),
    (Rule.RERESOLUTION, NeverAsks, "a connection in use was lost"),
    (Rule.RERESOLUTION, AsksOnlyOnLoss, "every connection has failed"),
    (Rule.RERESOLUTION, AsksOnlyOnFailure, "a connection in use was lost"),
    (Rule.EXIT_IDLE, StaysIdle, "after exit_idle"),
    (Rule.EXIT_IDLE, SleepsThroughPicks, "after a pick"),
    (Rule.RESET_BACKOFF, KeepsBackoff, "backoff of 10.0.0.1:80 is not reset"),
    (Rule.RESET_BACKOFF, ResetsTheFirst, "backoff of 10.0.0.2:80 is not reset"),
    (Rule.NO_REENTRANCY, ConnectsInReport, "asked to exit idle while it reports IDLE"),
    (Rule.NO_REENTRANCY, ResetsInRequest, "while it requests re-resolution"),
    (Rule.RELEASED_IS_GONE, ReleasesTwice, "releases 10.0.0.1:80, which it released"),
    (Rule.RELEASED_IS_GONE, UsesReleased, "requests a connection of 10.0.0.1:80"),
    (Rule.QUIET_BEFORE_UPDATE, ActsAtOnce, "reports IDLE before its first update"),
    (Rule.QUIET_BEFORE_UPDATE, StartsTimerAtOnce, "1 timers are pending"),
    (Rule.CLOSED, KeepsSubchannel, "subchannel to 10.0.0.1:80 is not released"),
    (Rule.CLOSED, KeepsTimer, "timers are pending"),
    (Rule.CLOSED, ReportsAtTheEnd, "reports TRANSIENT_FAILURE after it was closed"),
    (Rule.CLOSED, WakesUpAtTheEnd, "1 timers are pending"),
    (Rule.CLOSED, WakesUpAfterTheEnd, "timers are pending"),
    (Rule.CLOSED, ForgetsChild, "child 'pick_first' is not closed"),
    (Rule.CLOSED, ClosesChildTwice, "child 'pick_first' is closed after it was closed"),
    (Rule.RECOVERS, GivesUp, "policy is TRANSIENT_FAILURE after 300 s in which attempts"),
    (Rule.NO_RECURSION, RecursesThroughFailures, "maximum recursion depth exceeded"),
    (Rule.NO_RECURSION, NestsPickers, "maximum recursion depth exceeded"),
    (Rule.RAISES_NOTHING, Raises, "policy raises KeyError: 'a'"),
    (Rule.RAISES_NOTHING, RaisesForUncommonList, "policy raises ValueError: f6 is too much"),
    (Rule.RAISES_NOTHING, RaisesInCreate, "policy raises OSError: no such file"),
    (Rule.REPEATABLE, DrawsByItself, "two runs are equal until one picks"),
)
