"""Who owns the resolver, the policy tree and the RPCs of one target?

Specs: A31 (order of updates, selectors), A21 (bad service configs), A62 (idle).

Theory of operation. A channel starts IDLE and holds nothing. The first RPC or an explicit connect
makes it leave: a resolver is started, and its results flow down: service config → policy update →
and only when that has returned, the new selector (A31-13). Pickers flow up; each one replaces the
last and is tried on every queued RPC. After the idle timeout without RPCs everything is released
again. All of it happens on one loop.

The channel knows nothing of grpcio: the fronts adapt it to what applications expect.
"""

from __future__ import annotations

from dataclasses import field, replace
from math import inf
from typing import TYPE_CHECKING, Final

from proxyless.base import NULL_TRACE, State, Status, StatusCode, Trace, ValidationErrors, one_line
from proxyless.base.frozen import frozen
from proxyless.channel.attempt import LOGGER
from proxyless.channel.config_selector import (
    CONFIG_SELECTOR,
    UNROUTABLE,
    ConfigSelector,
    ServiceConfigSelector,
)
from proxyless.channel.credentials import CombinedCredentials, RefusedCredentials
from proxyless.channel.health_watch import ChannelHealth
from proxyless.channel.idle import Idleness
from proxyless.channel.method import Method, choose_call_type, make_method
from proxyless.channel.retry import KEPT_BYTES_MAX, RetryThrottle
from proxyless.channel.retrying import choose_strategy
from proxyless.channel.security import secure_subchannel
from proxyless.channel.service_config import ServiceConfig, parse_service_config
from proxyless.channel.statuses import (
    DEADLINE_EXCEEDED,
    deadline_exceeded,
    failure_of,
    from_control_plane,
    log_change,
)
from proxyless.channel.subchannel import SubchannelOptions
from proxyless.channel.view import ChannelView
from proxyless.lb.api import Context, Picker, Update
from proxyless.lb.attributes import HOLDER
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.resolver.api import Resolver, ResolverContext, ResolverResult
from proxyless.transport.names import server_name_of
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxyless.base import Address, Attributes
    from proxyless.channel.attempt import Strategy
    from proxyless.channel.call import Call
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.pool import SubchannelPool
    from proxyless.channel.security import SecuritySource
    from proxyless.channel.service_config import MethodConfig
    from proxyless.channel.subchannel import Connection
    from proxyless.lb.api import PolicyRegistry, Subchannel
    from proxyless.resolver.registry import ResolverRegistry
    from proxyless.runtime import Clock, DeadlineQueue, Network, Random

IDLE_TIMEOUT_S: Final = 30 * 60.0

CHANNEL_CLOSED: Final = Status(StatusCode.CANCELLED, "Channel closed!")


@frozen
class LoopStack:
    """What all channels of one loop share."""

    clock: Clock
    random: Random
    network: Network
    deadlines: DeadlineQueue
    pool: SubchannelPool
    trace: Trace = NULL_TRACE


@frozen(kw_only=True)
class ChannelOptions:
    """How one channel behaves. The fronts make it from what the application says."""

    subchannel: SubchannelOptions = field(default_factory=SubchannelOptions)
    # In force unless the resolver brings another one.
    service_config: Mapping[str, object] = field(default_factory=dict)
    is_resolver_config_used: bool = True
    authority: str | None = None
    user_agent: str = "proxyless"
    is_retry_enabled: bool = True
    kept_bytes_max: int = KEPT_BYTES_MAX
    send_bytes_max: float = inf
    idle_timeout_s: float = IDLE_TIMEOUT_S
    # Asked for metadata before each RPC.
    call_credentials: CallCredentials | None = None
    # How far apart pick_first starts connection attempts (A61); None is its default.
    connection_attempt_delay_s: float | None = None
    # Whether backends are asked how they are, if the service config says so (A17).
    is_health_checked: bool = True
    # As the application wrote them, for resolvers. Not shown: a proxy may have a password.
    by_name: Mapping[str, object] = field(default_factory=dict, repr=False)

    # Whether the connections keep secrets: over TLS, or on this machine only.
    is_private: bool = False
    # Has a say in how connections are secured; None: they are as `subchannel` says.
    security: SecuritySource | None = None
    # Who is told what happens here.
    metrics: Metrics = NO_METRICS

    @property
    def scheme(self) -> str:
        return self.subchannel.transport.scheme if self.security is None else "https"


def parse_default_config(options: ChannelOptions, policies: PolicyRegistry) -> ServiceConfig:
    """The options' service config, or ValidationError that names every bad field."""
    errors = ValidationErrors()
    config = parse_service_config(options.service_config, errors, policies)
    errors.raise_if_any("service config of the channel")
    return config


class Channel:
    """One target. Driven by its calls, its resolver, its policy and its idle timer."""

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
        self.target = target
        self.options = options
        self._stack = stack
        self._policies = policies
        self._factory, self._target = resolvers.match_target(target)
        self._default_config = parse_default_config(options, policies)
        self.authority = options.authority or self._factory.default_authority(self._target)
        server_name = server_name_of(self.authority)
        self.subchannel_options = replace(options.subchannel, server_name=server_name)
        # What every call asks for.
        self.call_type = choose_call_type(options.metrics)
        self.clock = stack.clock
        self.deadlines = stack.deadlines
        self.call_credentials = options.call_credentials
        self.send_bytes_max = options.send_bytes_max
        self.kept_bytes_max = options.kept_bytes_max
        self.health = ChannelHealth(self) if options.is_health_checked else None
        # Present while the channel is not idle.
        self._resolver: Resolver | None = None
        self._policy: GracefulSwitch | None = None
        self._service_config: ServiceConfig | None = None
        # The resolver's last good config, as it came and as it was understood.
        self._parsed: tuple[Mapping[str, object], ServiceConfig]
        self._parsed = (options.service_config, self._default_config)
        self.selector: ConfigSelector | None = None
        self._throttle: RetryThrottle | None = None
        # Whether the service config limits retries, so that every RPC counts.
        self.is_throttled = False
        # Why there is no selector, if there was one.
        self._unroutable: Status | None = None
        # From the policy's last report.
        self.state = State.IDLE
        self.picker: Picker = QUEUE_PICKER
        self._watchers: dict[Callable[[State], None], None] = {}
        # RPCs: all, those not selected yet, those whose pick is queued.
        self._calls: dict[Call, None] = {}
        self._unselected: dict[Call, None] = {}
        self._queued: dict[Call, None] = {}
        self._when_no_calls: list[Callable[[], None]] = []
        # What `close` released and nobody else holds.
        self._closing: list[Connection] = []
        self._idleness = Idleness(stack.clock, options.idle_timeout_s, self._enter_idle)

    # For the fronts

    def method(self, path: str, *, is_registered: bool = False) -> Method:
        """What the calls of a method share. Registered: generated code knows it."""
        return make_method(path, self.authority, self.options, is_registered=is_registered)

    def service_url(self, path: str) -> str:
        """What call credentials are told about where the RPC goes."""
        service = path[: path.rfind("/")]
        return f"https://{self.authority.removesuffix(':443')}{service}"

    def request_connection(self) -> None:
        """Leave IDLE, whoever is in it: the channel or its policy."""
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
        """What an RPC with call credentials of its own has to ask."""
        if not self.options.is_private:
            return RefusedCredentials()
        if self.call_credentials is None:
            return credentials
        return CombinedCredentials((self.call_credentials, credentials))

    def view(self) -> ChannelView:
        """What explains what becomes of an RPC now."""
        target, state, status = self.target, self.state, failure_of(self.picker)
        is_failing = state is State.TRANSIENT_FAILURE and self.selector is None
        unroutable = (self._unroutable or status) if is_failing else None
        waiting = len(self._unselected) + len(self._queued)
        resolved, policy = (self._resolver, self._service_config), self._policy
        return ChannelView(target, state, *resolved, unroutable, waiting, policy, status)

    @property
    def calls(self) -> int:
        return len(self._calls)

    def call_when_no_calls(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as no RPC is under way."""
        if self._calls:
            self._when_no_calls.append(callback)
        else:
            callback()

    def close(self, status: Status = CHANNEL_CLOSED) -> None:
        """End every RPC with this status and release everything. Idempotent."""
        if self.state is State.SHUTDOWN:
            return
        pool = self._stack.pool
        held = pool.held_connections()
        self._release_all()
        self._closing = [connection for connection in held if not connection.is_held]
        # They end as all the others do, and not because there is nothing to pick any more.
        self._queued.clear()
        self._set_state(State.SHUTDOWN, FailPicker(CHANNEL_CLOSED))
        for call in list(self._calls):
            call.cancel(status)

    async def wait_closed(self) -> None:
        """After `close`: return when the connections that only this channel held are gone."""
        await self._stack.pool.wait_gone(self._closing)

    # For the calls

    def on_call_started(self, call: Call) -> None:
        if not self._calls:
            self._idleness.on_active()
        self._calls[call] = None
        if self._resolver is None and self.state is not State.SHUTDOWN:
            self._exit_idle()

    def on_call_ended(self, call: Call) -> None:
        self._calls.pop(call, None)
        if self._queued or self._unselected:
            self._queued.pop(call, None)
            self._unselected.pop(call, None)
        if not self._calls:
            self._idleness.on_inactive()
            callbacks, self._when_no_calls = self._when_no_calls, []
            for callback in callbacks:
                callback()

    def wait_for_selector(self, call: Call) -> None:
        """Select the call as soon as there is a selector."""
        if self.state is State.SHUTDOWN:
            call.finish(StreamEnd(CHANNEL_CLOSED))
        elif self.state is State.TRANSIENT_FAILURE and not call.wait_for_ready:
            call.finish(StreamEnd(from_control_plane(self._unroutable or failure_of(self.picker))))
        else:
            self._unselected[call] = None

    def describe_delay(self, call: Call) -> Status:
        """How an RPC ends whose time is up: what it waited for may be the reason."""
        if call in self._queued and not call.is_connected:
            return deadline_exceeded("a connection", failure_of(self.picker))
        if call in self._unselected:
            failure = self._unroutable or failure_of(self.picker)
            return deadline_exceeded("the target's config", failure)
        return DEADLINE_EXCEEDED

    def queue_pick(self, call: Call) -> None:
        """Pick for the call again with the next picker."""
        self._queued[call] = None

    def choose_strategy(self, call: Call, method_config: MethodConfig) -> Strategy | None:
        """What a retry or hedging policy of the method asks for."""
        if not self.options.is_retry_enabled:
            return None
        stack = self._stack
        return choose_strategy(
            call, method_config, self._throttle, clock=stack.clock, random=stack.random
        )

    # Leaving and entering IDLE

    def _exit_idle(self) -> None:
        stack = self._stack
        context = ResolverContext(
            stack.network, stack.clock, stack.random, stack.trace, self.options.by_name
        )
        self._policy = GracefulSwitch(_Helper(self, stack, self._policies))
        self._idleness.start()
        self._set_state(State.CONNECTING, QUEUE_PICKER)
        try:
            self._resolver = self._factory.create(self._target, self, context)
        except Exception as error:
            LOGGER.exception("resolver of %s", self.target)
            text = f"{self.target}: resolver raised {type(error).__name__}: {error}"
            self._fail(Status(StatusCode.UNAVAILABLE, one_line(text)))
        else:
            self._resolver.start()

    def _enter_idle(self) -> None:
        """Nobody needed the channel for long (A62-16): the next RPC starts afresh (A62-18)."""
        self._release_all()
        self._set_state(State.IDLE, QUEUE_PICKER)

    def _release_all(self) -> None:
        self._idleness.stop()
        if self._resolver is not None:
            self._resolver.close()
        if self._policy is not None:
            self._policy.close()
        if self.selector is not None:
            self.selector.close()
        self._resolver = self._policy = self.selector = self._service_config = None
        self._unroutable = None
        if self.options.security is not None:
            self.options.security.release()

    # What the resolver says

    def on_result(self, result: ResolverResult) -> Status:
        """Apply a result: service config, then policy, then selector. All or nothing."""
        service_config = self._choose_service_config(result.service_config)
        if isinstance(service_config, Status):
            # "If there is no valid service config yet, … TRANSIENT_FAILURE" - A21
            if self._service_config is None:
                self._fail(service_config)
            refused = result.attributes.get(CONFIG_SELECTOR)
            if refused is not None and refused is not self.selector:
                refused.close()
            return service_config
        if isinstance(result.endpoints, Status) and self._service_config is None:
            self._fail(result.endpoints)
            return result.endpoints
        return self._apply(service_config, result)

    def _choose_service_config(
        self, found: Mapping[str, object] | Status | None
    ) -> ServiceConfig | Status:
        """The config to use, or what is wrong with the resolver's."""
        if found is None or not self.options.is_resolver_config_used:
            return self._default_config
        if isinstance(found, Status):
            return found
        # A resolver that has nothing new to say about it brings the same object again.
        if found is self._parsed[0]:
            return self._parsed[1]
        errors = ValidationErrors()
        config = parse_service_config(found, errors, self._policies)
        if errors.ok:
            self._parsed = (found, config)
            return config
        return Status(StatusCode.UNAVAILABLE, f"{self.target}: service config: {errors}")

    def _apply(self, service_config: ServiceConfig, result: ResolverResult) -> Status:
        assert self._policy is not None, "a resolver runs only beside a policy"
        if service_config is not self._service_config:
            self._throttle = RetryThrottle.following(self._throttle, service_config)
            self.is_throttled = self._throttle is not None
            self._service_config = service_config
            if self.health is not None:
                self.health.check(service_config.health_check_service)
        assert service_config.policy is not None, "a config that is used names a policy"
        attributes = result.attributes
        if self.options.connection_attempt_delay_s is not None:
            delay_s = self.options.connection_attempt_delay_s
            attributes = attributes.with_(CONNECTION_ATTEMPT_DELAY, delay_s)
        update = Update(result.endpoints, service_config.policy, attributes, result.resolution_note)
        # First: what the policy reports in its update is the channel's state again.
        self._unroutable = result.attributes.get(UNROUTABLE)
        status = self._policy.update(update)
        # "the channel … only then publishes the new selector" (A31-13): RPCs that it sends to a
        # new cluster find a picker that knows it.
        if self._unroutable is not None:
            self._unpublish(self._unroutable)
            return status
        selector = result.attributes.get(CONFIG_SELECTOR)
        self._publish(selector or ServiceConfigSelector(service_config))
        return status

    def _unpublish(self, status: Status) -> None:
        """Nothing routes RPCs any more; those that were routed go on with the policy (D29)."""
        if self.selector is not None:
            self.selector.close()
            self.selector = None
        self._set_state(State.TRANSIENT_FAILURE, self.picker)
        self._fail_unselected(status)

    def _publish(self, selector: ConfigSelector) -> None:
        previous, self.selector = self.selector, selector
        if previous is not None and previous is not selector:
            previous.close()
        unselected, self._unselected = self._unselected, {}
        _go_on(unselected, lambda call: call.select())

    def _fail(self, status: Status) -> None:
        """There is nothing to route RPCs by: they fail, unless they can wait."""
        self._set_state(State.TRANSIENT_FAILURE, FailPicker(status))
        self._fail_unselected(status)

    def _fail_unselected(self, status: Status) -> None:
        for call in list(self._unselected):
            if not call.wait_for_ready:
                call.finish(StreamEnd(from_control_plane(status)))

    # What the policy says

    def on_report(self, state: State, picker: Picker) -> None:
        if self._policy is not None:
            # Whatever the policy can still do, new RPCs cannot be routed.
            is_unroutable = self._unroutable is not None
            self._set_state(State.TRANSIENT_FAILURE if is_unroutable else state, picker)

    def on_reresolution_request(self) -> None:
        if self._resolver is not None:
            self._resolver.request_reresolution()

    def _set_state(self, state: State, picker: Picker) -> None:
        self.picker = picker
        if state is not self.state:
            log_change(self.target, (self.state, state), self._unroutable or picker)
            self.state = state
            if self._stack.trace.active:
                self._stack.trace.emit("channel.state", target=self.target, state=state)
            for on_state in list(self._watchers):
                on_state(state)
        if self._queued:
            self._pick_queued()

    def _pick_queued(self) -> None:
        queued, self._queued = self._queued, {}
        _go_on(queued, lambda call: call.pick(self.picker))


def _go_on(waiting: Iterable[Call], step: Callable[[Call], None]) -> None:
    """Let RPCs take their next step. If that is one's last, the others take theirs."""
    for call in waiting:
        if not call.is_ended:
            try:
                step(call)
            except Exception as error:
                call.on_bug("channel", error)


class _Helper:
    """What the channel gives its policy to act through."""

    def __init__(self, channel: Channel, stack: LoopStack, policies: PolicyRegistry) -> None:
        self._channel = channel
        self._pool = stack.pool
        metrics = channel.options.metrics
        self.context = Context(stack.clock, stack.random, policies, stack.trace, metrics)

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        channel = self._channel
        options = secure_subchannel(
            channel.subchannel_options, channel.options.security, attributes
        )
        holder = attributes.get(HOLDER) or channel
        return self._pool.acquire(address, options, channel.health, holder)

    def update_state(self, state: State, picker: Picker) -> None:
        self._channel.on_report(state, picker)

    def request_reresolution(self) -> None:
        self._channel.on_reresolution_request()
