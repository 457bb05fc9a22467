"""Channel: owns the resolver, the policy tree and the RPCs of one target.

Specs: A31 (order of updates, selectors), A21 (bad service configs), A62 (idle).

Theory of operation. A channel starts IDLE and holds nothing. The first RPC or an explicit connect
starts a resolver. Its results flow down: service config → policy update → and only when that has
returned, the new selector (A31-13). Pickers flow up; each one replaces the last and is tried on
every queued RPC. After the idle timeout without RPCs everything is released again. All of it
happens on one loop.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from proxyless.base import State, Status, StatusCode, one_line
from proxyless.base.frozen import replace
from proxyless.channel.call import Call, longest_wait_s
from proxyless.channel.config_selector import (
    CONFIG_SELECTOR,
    UNROUTABLE,
    ServiceConfigSelector,
)
from proxyless.channel.config_state import ConfigState
from proxyless.channel.connection import next_id
from proxyless.channel.credentials import CombinedCredentials, RefusedCredentials
from proxyless.channel.health_watch import ChannelHealth
from proxyless.channel.idleness import Idleness
from proxyless.channel.method import Method, make_method
from proxyless.channel.pick_queue import PickQueue
from proxyless.channel.security import secure_subchannel
from proxyless.channel.statuses import (
    DEADLINE_EXCEEDED,
    LOGGER,
    deadline_exceeded,
    failure_of,
    from_control_plane,
    log_change,
)
from proxyless.lb.api import Context, Picker, Update
from proxyless.lb.attributes import HOLDER
from proxyless.lb.connection_limit import CONNECTION_LIMIT
from proxyless.lb.graceful_switch import GracefulSwitchPolicy
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.resolver.api import (
    ExplainedResolver,
    Resolver,
    ResolverContext,
    ResolverResult,
)
from proxyless.transport.server_names import server_name_of
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Address, Attributes
    from proxyless.channel.attempt import Strategy
    from proxyless.channel.call_counts import ChannelCounts
    from proxyless.channel.call_owner import ActiveCall, WaitingCall
    from proxyless.channel.connection import Connection
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.loop_stack import LoopStack
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.retry_strategies import RetriedCall
    from proxyless.channel.service_config import MethodConfig, ServiceConfig
    from proxyless.channel.traced_call import TracedCalls
    from proxyless.channel.view import ChannelView
    from proxyless.lb.api import PolicyRegistry, Subchannel
    from proxyless.metrics import Metrics
    from proxyless.resolver.registry import ResolverRegistry
    from proxyless.runtime import Clock

CHANNEL_CLOSED: Final = Status(StatusCode.CANCELLED, "Channel closed!")


class Channel:
    """One target: its resolver, policy tree, connectivity state and RPCs."""

    def __init__(
        self,
        target: str,
        options: ChannelOptions,
        stack: LoopStack,
        *,
        policies: PolicyRegistry,
        resolvers: ResolverRegistry,
    ) -> None:
        """Raises ValueError if the target or the options' service config cannot be used."""
        # Fixed at construction.
        self.id: Final = next_id()
        self.target = target
        self.options = options
        self.stack = stack
        # The factory of its resolver, and the parsed target.
        self._source = factory, parsed_target = resolvers.match_target(target)
        self.config = ConfigState(target, options, policies)
        self.authority = options.authority or factory.default_authority(parsed_target)
        self.call_type = choose_call_type(options.metrics)
        self.health = ChannelHealth(self.authority, options) if options.is_health_checked else None
        # Present while the channel is not idle.
        self._resolver: Resolver | None = None
        self._policy: GracefulSwitchPolicy | None = None
        # From the policy's last report; its picker is in the queue.
        self.state = State.IDLE
        self._has_been_ready = False
        self.picks = PickQueue()
        self._watchers: dict[Callable[[State], None], None] = {}
        # All RPCs under way.
        self._calls: dict[ActiveCall, None] = {}
        self._idleness = Idleness(
            stack.clock, options.idle_timeout_s, self._calls, self._enter_idle
        )
        # Connections that this channel used when it was closed.
        self._closing: list[Connection] = []
        # None unless calls are counted.
        self.counts: ChannelCounts | None = None
        self._is_limit_logged = False
        stack.channels.add(self)

    @property
    def clock(self) -> Clock:
        return self.stack.clock

    @property
    def canonical_target(self) -> str:
        """The target in full, with its scheme."""
        _, parsed_target = self._source
        return str(parsed_target)

    @property
    def picker(self) -> Picker:
        return self.picks.picker

    # Called by the front

    def method(self, path: str, *, is_registered: bool = False) -> Method:
        return make_method(path, self.authority, self.options, is_registered=is_registered)

    def request_connection(self) -> None:
        """Leave IDLE: the channel itself, or its policy."""
        if self.state is State.SHUTDOWN:
            return
        if self._resolver is None:
            self._exit_idle()
        elif self.state is State.IDLE and self._policy is not None:
            self._idleness.start()
            self._policy.exit_idle()

    def watch_state(self, on_state: Callable[[State], None]) -> Callable[[], None]:
        """Call back on each change of `state`, until the returned callable is called."""
        self._watchers[on_state] = None

        def cancel() -> None:
            self._watchers.pop(on_state, None)

        return cancel

    def combine_credentials(self, credentials: CallCredentials) -> CallCredentials:
        """Credentials of an RPC that has call credentials of its own."""
        if not self.options.is_private:
            return RefusedCredentials()
        if self.options.call_credentials is None:
            return credentials
        return CombinedCredentials((self.options.call_credentials, credentials))

    def view(self) -> ChannelView:
        from proxyless.channel.view import ChannelView  # noqa: PLC0415 - only for explanations

        config, status = self.config, failure_of(self.picker)
        is_failing = self.state is State.TRANSIENT_FAILURE and config.selector is None
        return ChannelView(
            self.target,
            self.state,
            self._resolver,
            config.service_config,
            unroutable=(config.unroutable or status) if is_failing else None,
            waiting=len(config.unselected) + len(self.picks.calls),
            policy=self._policy,
            failure=status,
            longest_wait_s=longest_wait_s(
                (*config.unselected, *self.picks.calls), self.clock.now_s()
            ),
        )

    @property
    def calls(self) -> int:
        return len(self._calls)

    def count_calls(self, counts: ChannelCounts) -> None:
        """Count the calls that start from now on. No-op if calls are counted."""
        if self.counts is None:
            from proxyless.channel.counted_call import counted  # noqa: PLC0415 - seldom used

            # Set first: threads may create a call at any time.
            self.counts = counts
            call_type = self.call_type
            if isinstance(call_type, type):
                self.call_type = counted(call_type)
            else:
                self.call_type = call_type.extended(counted)

    def call_when_no_calls(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as no RPC is under way."""
        self._idleness.call_when_inactive(callback)

    def close(self, status: Status = CHANNEL_CLOSED) -> None:
        """End every RPC with this status and release everything. Idempotent."""
        if self.state is State.SHUTDOWN:
            return
        self._closing = self.stack.pool.connections_of(self)
        self._release_all()
        # These calls end below, with the others, and not by a failed pick.
        self.picks.calls.clear()
        self._set_state(State.SHUTDOWN, FailPicker(CHANNEL_CLOSED))
        for call in list(self._calls):
            call.cancel(status)

    async def wait_closed(self) -> None:
        """After `close`: return when the connections that only this channel held are gone."""
        await self.stack.pool.wait_released(self)
        await self.stack.pool.wait_gone(self._closing)
        # The loop may end before the queue's timer fires.
        self.stack.work.resume_collections()

    # Called by calls

    def on_call_started(self, call: ActiveCall) -> None:
        self._calls[call] = None
        if self._resolver is None and self.state is not State.SHUTDOWN:
            self._exit_idle()

    def on_call_ended(self, call: ActiveCall) -> None:
        self._calls.pop(call, None)
        if not self._calls:
            self._idleness.on_inactive()

    def wait_for_selector(self, call: WaitingCall) -> None:
        if self.state is State.SHUTDOWN:
            call.finish(StreamEnd(CHANNEL_CLOSED))
        elif self.state is State.TRANSIENT_FAILURE and not call.wait_for_ready:
            call.finish(StreamEnd(self.describe_failure(self._failure(), call.path)))
        else:
            self.config.add(call)

    def describe_delay(self, call: WaitingCall) -> Status:
        failure = self.picks.calls.get(call)
        if failure is not None and not call.is_connected:
            # Other RPCs may be routed to clusters that do not fail.
            failure = failure_of(self.picker) if failure.is_ok else failure
            status = deadline_exceeded("a connection", failure)
            return self._with_command(status, call.path)
        if call in self.config.unselected:
            status = deadline_exceeded("the target's config", self.describe_wait())
            return self._with_command(status, call.path)
        return DEADLINE_EXCEEDED

    def describe_wait(self) -> Status:
        failure, resolver = self._failure(), self._resolver
        if failure.is_ok and isinstance(resolver, ExplainedResolver):
            return resolver.describe_wait()
        return failure

    def describe_failure(self, status: Status, path: str) -> Status:
        return self._with_command(from_control_plane(status), path)

    def describe_limit(self, status: Status, note: str) -> Status:
        text = f"{status.details}: {note}"
        if not self._is_limit_logged:
            self._is_limit_logged = True
            LOGGER.warning("%s: RPC ended: %s", self.target, note)
        return Status(status.code, text)

    def _with_command(self, status: Status, path: str) -> Status:
        """Append the command to run next, until the channel has been READY once."""
        resolver = self._resolver
        if self._has_been_ready or not isinstance(resolver, ExplainedResolver):
            return status
        command = resolver.name_command(path)
        return Status(status.code, f"{status.details}; see: {command}") if command else status

    def _failure(self) -> Status:
        """The reason why there is no selector; OK if there is no error."""
        return self.config.unroutable or failure_of(self.picker)

    def choose_strategy(self, call: RetriedCall, method_config: MethodConfig) -> Strategy | None:
        if not self.options.is_retry_enabled:
            return None
        throttle, stack = self.config.throttle, self.stack
        return self._strategy_chooser(
            call, method_config, throttle, clock=stack.clock, random=stack.random
        )

    @cached_property
    def _strategy_chooser(self) -> Callable[..., Strategy | None]:
        from proxyless.channel.retry_strategies import choose_strategy  # noqa: PLC0415 - seldom

        return choose_strategy

    # Leaving and entering IDLE

    def _exit_idle(self) -> None:
        stack = self.stack
        context = ResolverContext(
            stack.network, stack.clock, stack.random, stack.trace, self.options.resolver
        )
        self._policy = GracefulSwitchPolicy(_Helper(self))
        self._idleness.start()
        self._set_state(State.CONNECTING, QUEUE_PICKER)
        factory, parsed_target = self._source
        try:
            self._resolver = factory.create(parsed_target, self, context)
        except Exception as error:
            LOGGER.exception("resolver of %s", self.target)
            text = f"{self.target}: resolver raised {type(error).__name__}: {error}"
            self._fail(Status(StatusCode.UNAVAILABLE, one_line(text)))
        else:
            self._resolver.start()

    def _enter_idle(self) -> None:
        """Release everything after the idle timeout (A62-16); the next RPC starts anew (A62-18)."""
        self._release_all()
        self._set_state(State.IDLE, QUEUE_PICKER)

    def _release_all(self) -> None:
        self._idleness.stop()
        if self._resolver is not None:
            self._resolver.close()
        if self._policy is not None:
            # Many endpoints are released in slices.
            self._policy.close()
        self.config.release()
        self._resolver = self._policy = None
        if self.options.security is not None:
            self.options.security.release()

    # Called by the resolver

    def on_result(self, result: ResolverResult) -> Status:
        """Apply a result: service config, then policy, then selector. All or nothing."""
        service_config = self.config.choose(result.service_config)
        if isinstance(service_config, Status):
            # "If there is no valid service config yet, … TRANSIENT_FAILURE" - A21
            if self.config.service_config is None:
                self._fail(service_config)
            refused = result.attributes.get(CONFIG_SELECTOR)
            if refused is not None and refused is not self.config.selector:
                refused.close()
            return service_config
        if isinstance(result.endpoints, Status) and self.config.service_config is None:
            self._fail(result.endpoints)
            return result.endpoints
        return self._apply(service_config, result)

    def _apply(self, service_config: ServiceConfig, result: ResolverResult) -> Status:
        assert self._policy is not None, "a resolver runs only beside a policy"
        if self.config.use(service_config) and self.health is not None:
            self.health.check(service_config.health_check_service)
        assert service_config.policy is not None, "a config that is used names a policy"
        # A policy may keep its last update, and must not keep an old selector with it.
        attributes = result.attributes.without(CONFIG_SELECTOR)
        if self.options.connection_attempt_delay_s is not None:
            delay_s = self.options.connection_attempt_delay_s
            attributes = attributes.with_(CONNECTION_ATTEMPT_DELAY, delay_s)
        update = Update(result.endpoints, service_config.policy, attributes, result.resolution_note)
        # First, because the policy reports a state inside `update`.
        self.config.unroutable = result.attributes.get(UNROUTABLE)
        status = self._policy.update(update)
        # "the channel … only then publishes the new selector" (A31-13): for RPCs that it sends to
        # a new cluster there is a picker.
        if self.config.unroutable is not None:
            self._unpublish(self.config.unroutable)
            return status
        selector = result.attributes.get(CONFIG_SELECTOR)
        self.config.publish(selector or ServiceConfigSelector(service_config))
        return status

    def _unpublish(self, status: Status) -> None:
        """Fail new RPCs; those that were routed continue with the policy (D29)."""
        self.config.unpublish()
        self._set_state(State.TRANSIENT_FAILURE, self.picker)
        self.config.fail_unselected(status, self.describe_failure)

    def _fail(self, status: Status) -> None:
        """Fail RPCs that are not wait-for-ready, for lack of a config."""
        self._set_state(State.TRANSIENT_FAILURE, FailPicker(status))
        self.config.fail_unselected(status, self.describe_failure)

    # Called by the policy

    def on_report(self, state: State, picker: Picker) -> None:
        if self._policy is not None:
            # Without a selector new RPCs fail, whatever state the policy reports.
            is_unroutable = self.config.unroutable is not None
            self._set_state(State.TRANSIENT_FAILURE if is_unroutable else state, picker)

    def on_reresolution_request(self) -> None:
        if self._resolver is not None:
            self._resolver.request_reresolution()

    def _set_state(self, state: State, picker: Picker) -> None:
        self.picks.picker = picker
        if state is not self.state:
            log_change(self.target, (self.state, state), self.config.unroutable or picker)
            self.state = state
            self._has_been_ready |= state is State.READY
            if self.stack.trace.active:
                self.stack.trace.emit("channel.state", target=self.target, state=state)
            for on_state in list(self._watchers):
                on_state(state)
        if self.picks.calls:
            self.picks.pick_all()


def choose_call_type(metrics: Metrics) -> type[Call] | TracedCalls:
    if not metrics.active:
        return Call
    if metrics.is_traced:
        from proxyless.channel.traced_call import TracedCalls  # noqa: PLC0415 - few channels use it

        return TracedCalls()
    from proxyless.channel.measured_call import MeasuredCall  # noqa: PLC0415 - few channels use it

    return MeasuredCall


class _Helper:
    """The `Helper` of the channel's policy."""

    def __init__(self, channel: Channel) -> None:
        options, stack = channel.options, channel.stack
        self._channel = channel
        self._options = replace(options.subchannel, server_name=server_name_of(channel.authority))
        self.context = Context(
            stack.clock,
            stack.random,
            channel.config.policies,
            stack.trace,
            options.metrics,
            stack.work,
        )

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        channel = self._channel
        options = secure_subchannel(self._options, channel.options.security, attributes)
        holder = attributes.get(HOLDER) or channel
        handle = channel.stack.pool.acquire(address, options, channel.health, holder, channel)
        handle.attributes = attributes
        limit = attributes.get(CONNECTION_LIMIT)
        handle.connection_limit = channel.config.connection_limit if limit is None else limit
        handle.connections_cap = channel.options.connections_cap
        if self.context.metrics.active:
            handle.measure(self.context.metrics, attributes)
        return handle

    def update_state(self, state: State, picker: Picker) -> None:
        self._channel.on_report(state, picker)

    def request_reresolution(self) -> None:
        self._channel.on_reresolution_request()
