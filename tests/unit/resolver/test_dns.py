"""Unit tests of proxyless.resolver.dns."""

import asyncio
import itertools
import socket
from math import inf

import pytest

from proxyless.base import OK, BackoffPolicy, IpAddress, Status, StatusCode, hits
from proxyless.resolver import DnsFactory, Resolver, ResolverRegistry, Target
from proxyless.resolver.api import DnsTimes
from proxyless.resolver.dns import (
    DnsResolver,
    DoNothing,
    GiveUp,
    History,
    LookUp,
    Reason,
    Wait,
    choose_look_up,
)
from tests.worlds.resolvers import ResolverWorld, settle

NAME = "backend.example"
NO_SUCH_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
FAILURE = f'UNAVAILABLE: dns name "{NAME}:80": name or service not known'
REGISTRY = ResolverRegistry([DnsFactory()])
REFUSAL = Status(StatusCode.UNAVAILABLE, "cannot be used")


def create(world: ResolverWorld, text: str = f"{NAME}:80") -> Resolver:
    factory, target = REGISTRY.match_target(text)
    return factory.create(target, world.listener, world.context)


@pytest.fixture
def world() -> ResolverWorld:
    return ResolverWorld()


# The decision

TIMES = DnsTimes(floor_s=30, refresh_s=300, answer_timeout_s=120)


@pytest.mark.parametrize(
    ("times", "now_s", "history", "choice"),
    [
        # Before the first look-up.
        (TIMES, 0.0, History(), LookUp(Reason.FIRST)),
        # Under way: only the timeout applies.
        (TIMES, 5.0, History(0.0, is_under_way=True), Wait(120.0)),
        (TIMES, 5.0, History(0.0, is_under_way=True, is_requested=True), Wait(120.0)),
        (TIMES, 119.9, History(0.0, is_under_way=True), Wait(120.0)),
        (TIMES, 120.0, History(0.0, is_under_way=True), GiveUp()),
        (DnsTimes(answer_timeout_s=inf), 1e9, History(0.0, is_under_way=True), DoNothing()),
        # After a failure: only the backoff applies.
        (TIMES, 5.0, History(0.0, retry_s=6.0), Wait(6.0)),
        (TIMES, 5.0, History(0.0, retry_s=6.0, is_requested=True), Wait(6.0)),
        (TIMES, 6.0, History(0.0, retry_s=6.0), LookUp(Reason.FAILED)),
        (TIMES, 100.0, History(0.0, retry_s=130.0, is_requested=True), Wait(130.0)),
        # After a success: a request once per floor, a refresh once per interval.
        (DnsTimes(), 1e9, History(0.0), DoNothing()),
        (TIMES, 5.0, History(0.0), Wait(300.0)),
        (TIMES, 300.0, History(0.0), LookUp(Reason.REFRESH)),
        (TIMES, 5.0, History(0.0, is_requested=True), Wait(30.0)),
        (TIMES, 30.0, History(0.0, is_requested=True), LookUp(Reason.REQUESTED)),
        (TIMES, 500.0, History(0.0, is_requested=True), LookUp(Reason.REQUESTED)),
        (DnsTimes(floor_s=0), 0.0, History(0.0, is_requested=True), LookUp(Reason.REQUESTED)),
        # A request does not delay a refresh that is due before the floor.
        (DnsTimes(refresh_s=5), 4.0, History(0.0, is_requested=True), Wait(5.0)),
        (DnsTimes(refresh_s=5), 5.0, History(0.0, is_requested=True), LookUp(Reason.REFRESH)),
        # A timer that is early by a rounding error.
        (TIMES, 0.1 + 0.2 - 1e-9, History(0.0, retry_s=0.1 + 0.2), LookUp(Reason.FAILED)),
    ],
)
def test_decision_follows_from_the_history(
    times: DnsTimes, now_s: float, history: History, choice: object
) -> None:
    assert choose_look_up(times, now_s, history) == choice


PASTS = [
    History(began_s, is_under_way, retry_s, is_requested)
    for began_s, is_under_way, retry_s, is_requested in itertools.product(
        (None, 0.0, 50.0), (False, True), (None, 60.0, 200.0), (False, True)
    )
]
ALL_TIMES = [
    DnsTimes(floor_s=floor_s, refresh_s=refresh_s, answer_timeout_s=answer_timeout_s)
    for floor_s, refresh_s, answer_timeout_s in itertools.product(
        (0.0, 30.0, 90.0), (10.0, 90.0, inf), (20.0, inf)
    )
]


@pytest.mark.parametrize("times", ALL_TIMES)
def test_every_decision_is_timely(times: DnsTimes) -> None:
    for history, now_s in itertools.product(PASTS, (50.0, 60.0, 75.0, 140.0, 1000.0)):
        choice = choose_look_up(times, now_s, history)
        if history.began_s is not None and history.is_under_way:
            assert not isinstance(choice, LookUp), "never two look-ups at once"
        else:
            assert not isinstance(choice, GiveUp), "there is nothing to give up"
        if isinstance(choice, Wait):
            assert choice.until_s > now_s
            later = choose_look_up(times, choice.until_s, history)
            assert isinstance(later, LookUp | GiveUp), "something is due at the end of a wait"
        if isinstance(choice, DoNothing):
            assert choose_look_up(times, 1e12, history) == DoNothing(), "nothing becomes due later"
        if choice == LookUp(Reason.REQUESTED):
            assert history.began_s is not None
            assert history.is_requested
            assert now_s >= history.began_s + times.floor_s


# Answers


async def test_each_address_is_an_endpoint_in_the_order_of_the_answer(
    world: ResolverWorld,
) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    assert world.network.queries == [(NAME, 80)]
    await world.network.respond("10.0.0.2:80", "[2001:db8::1]:80", "10.0.0.1:80")
    assert world.listener.addresses == [["10.0.0.2:80", "[2001:db8::1]:80", "10.0.0.1:80"]]
    [result] = world.listener.results
    assert result.service_config is None
    resolver.close()


async def test_no_look_up_before_the_start(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.request_reresolution()
    resolver.reset_backoff()
    await world.advance(1000)
    assert world.network.queries == []
    resolver.close()


async def test_a_name_without_a_port_gets_443(world: ResolverWorld) -> None:
    resolver = create(world, f"dns:///{NAME}")
    resolver.start()
    await settle()
    assert world.network.queries == [(NAME, 443)]
    resolver.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dns:///10.0.0.1:80", "10.0.0.1:80"),
        ("10.0.0.1", "10.0.0.1:443"),
        ("[::1]:80", "[::1]:80"),
        ("dns:///::1", "[::1]:443"),
    ],
)
async def test_a_literal_address_needs_no_look_up(
    world: ResolverWorld, text: str, address: str
) -> None:
    resolver = create(world, text)
    resolver.start()
    await world.advance(0)
    assert world.listener.addresses == [[address]]
    assert world.network.queries == []
    resolver.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NO_SUCH_NAME, "name or service not known"),
        (OSError("odd"), "odd"),
        (ValueError(), "ValueError"),
        (asyncio.CancelledError(), "look-up was cancelled"),
    ],
)
async def test_error_of_a_look_up_is_a_result(
    world: ResolverWorld, error: BaseException, expected: str
) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    await world.network.fail(error)
    assert world.listener.failures == [f'UNAVAILABLE: dns name "{NAME}:80": {expected}']
    resolver.close()


async def test_an_answer_without_addresses_is_a_failure(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    await world.network.respond()
    assert world.listener.failures == [f'UNAVAILABLE: dns name "{NAME}:80": name has no address']
    await world.advance(1.0)
    assert len(world.network.queries) == 2
    resolver.close()


# Further look-ups


async def test_no_further_look_up_without_a_request(world: ResolverWorld) -> None:
    resolver = await answered(world)
    await world.advance(1_000_000)
    assert len(world.network.queries) == 1
    assert world.clock.timers_pending == 0
    resolver.close()


async def answered(world: ResolverWorld) -> Resolver:
    """A resolver after its first answer."""
    resolver = create(world)
    resolver.start()
    await settle()
    await world.network.respond("10.0.0.1:80")
    return resolver


async def test_requests_are_granted_once_per_floor(world: ResolverWorld) -> None:
    resolver = await answered(world)
    resolver.request_reresolution()
    await world.advance(29.9)
    resolver.request_reresolution()
    await world.advance(0.09)
    assert (len(world.network.queries), world.clock.timers_pending) == (1, 1)
    with hits(world.trace, "dns.look_up") as looked_up:
        await world.advance(0.01)
    assert [event.fields["reason"] for event in looked_up] == ["re-resolution requested"]
    with hits(world.trace, "dns.answer"):
        await world.network.respond("10.0.0.2:80")
    await world.advance(1000)
    assert world.listener.addresses == [["10.0.0.1:80"], ["10.0.0.2:80"]]
    assert len(world.network.queries) == 2, "both requests were answered by one look-up"
    resolver.close()


async def test_a_request_long_after_the_last_look_up_is_granted_at_once(
    world: ResolverWorld,
) -> None:
    resolver = await answered(world)
    await world.advance(30)
    resolver.request_reresolution()
    await settle()
    assert len(world.network.queries) == 2
    resolver.close()


async def test_the_floor_can_be_set(world: ResolverWorld) -> None:
    world.times = DnsTimes(floor_s=1.5)
    resolver = await answered(world)
    resolver.request_reresolution()
    await world.advance(1.49)
    assert len(world.network.queries) == 1
    await world.advance(0.01)
    assert len(world.network.queries) == 2
    resolver.close()


async def test_a_request_during_a_look_up_is_answered_by_it(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    resolver.request_reresolution()
    await settle()
    resolver.request_reresolution()
    await world.network.respond("10.0.0.1:80")
    await world.advance(1000)
    assert len(world.network.queries) == 1
    resolver.close()


async def test_a_refresh_comes_by_itself_at_its_interval(world: ResolverWorld) -> None:
    world.times = DnsTimes(refresh_s=5.0)
    resolver = await answered(world)
    for number in (2, 3, 4):
        await world.advance(4.99)
        assert len(world.network.queries) == number - 1
        await world.advance(0.01)
        assert len(world.network.queries) == number
        await world.network.respond(f"10.0.0.{number}:80")
    assert world.listener.addresses[-1] == ["10.0.0.4:80"]
    resolver.close()


async def test_failures_are_retried_with_growing_delays_until_one_succeeds(
    world: ResolverWorld,
) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    for number, delay_s in enumerate((1.0, 1.6, 2.56, 4.096), start=1):
        # The delay counts from the failure.
        await world.advance(3)
        await world.network.fail(NO_SUCH_NAME)
        assert len(world.listener.failures) == number
        await world.advance(delay_s - 0.01)
        assert len(world.network.queries) == number
        await world.advance(0.01)
        assert len(world.network.queries) == number + 1
    await world.network.respond("10.0.0.1:80")
    assert world.listener.failures == [FAILURE] * 4
    assert world.listener.addresses == [["10.0.0.1:80"]]
    await world.advance(30)
    resolver.request_reresolution()
    await settle()
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(1)
    assert len(world.network.queries) == 7, "a success resets the backoff"
    resolver.close()


async def test_backoff_can_be_chosen(world: ResolverWorld) -> None:
    world.times = DnsTimes(backoff=BackoffPolicy(initial_s=3.0, multiplier=2.0, max_s=4.0))
    resolver = create(world)
    assert isinstance(resolver, DnsResolver)
    resolver.start()
    await settle()
    for delay_s in (3.0, 4.0, 4.0):
        assert resolver.retry_in_s() is None
        await world.network.fail(NO_SUCH_NAME)
        assert resolver.retry_in_s() == pytest.approx(delay_s)
        await world.advance(delay_s)
    assert len(world.network.queries) == 4
    resolver.close()


async def test_request_does_not_shorten_the_backoff(world: ResolverWorld) -> None:
    world.times = DnsTimes(floor_s=0)
    resolver = create(world)
    resolver.start()
    await settle()
    await world.network.fail(NO_SUCH_NAME)
    resolver.request_reresolution()
    await world.advance(0.9)
    assert len(world.network.queries) == 1
    resolver.close()


async def test_reset_ends_and_restarts_the_backoff(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    for _ in range(3):
        await world.network.fail(NO_SUCH_NAME)
        await world.advance(3)
    await world.network.fail(NO_SUCH_NAME)
    resolver.reset_backoff()
    await settle()
    assert len(world.network.queries) == 5
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(1.0)
    assert len(world.network.queries) == 6
    resolver.close()


async def test_resetting_the_backoff_during_a_look_up_does_not_disturb_it(
    world: ResolverWorld,
) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(1)
    resolver.reset_backoff()
    await settle()
    assert len(world.network.queries) == 2
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(1)
    assert len(world.network.queries) == 3, "the backoff was reset"
    resolver.close()


async def test_reset_after_a_success_causes_no_look_up(world: ResolverWorld) -> None:
    resolver = await answered(world)
    resolver.reset_backoff()
    await world.advance(100)
    assert len(world.network.queries) == 1
    resolver.close()


async def test_look_up_fails_after_the_timeout(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    await world.advance(119.9)
    assert world.listener.results == []
    await world.advance(0.1)
    assert world.listener.failures == [f'UNAVAILABLE: dns name "{NAME}:80": no answer within 120 s']
    assert world.network.under_way == []
    await world.advance(1)
    await world.network.respond("10.0.0.1:80")
    assert world.listener.addresses == [["10.0.0.1:80"]]
    assert world.network.under_way_max == 1
    resolver.close()


async def test_look_up_has_no_timeout_when_it_is_infinite(world: ResolverWorld) -> None:
    world.times = DnsTimes(answer_timeout_s=inf)
    resolver = create(world)
    resolver.start()
    await world.advance(1_000_000)
    assert (world.listener.results, world.clock.timers_pending) == ([], 0)
    await world.network.respond("10.0.0.1:80")
    assert world.listener.addresses == [["10.0.0.1:80"]]
    resolver.close()


# The listener


async def test_result_that_cannot_be_used_is_looked_up_again_after_a_backoff(
    world: ResolverWorld,
) -> None:
    world.listener.reply = REFUSAL
    resolver = await answered(world)
    await world.advance(0.99)
    assert len(world.network.queries) == 1
    await world.advance(0.01)
    assert len(world.network.queries) == 2
    world.listener.reply = OK
    await world.network.respond("10.0.0.1:80")
    await world.advance(1000)
    assert len(world.network.queries) == 2
    resolver.close()


async def test_listener_may_request_reresolution_inside_on_result(world: ResolverWorld) -> None:
    world.times = DnsTimes(floor_s=0)
    resolver = create(world)
    world.listener.react = resolver.request_reresolution
    resolver.start()
    await settle()
    for number in (1, 2, 3):
        await world.network.respond(f"10.0.0.{number}:80")
        assert len(world.network.queries) == number + 1
    assert world.network.under_way_max == 1
    resolver.close()


async def test_request_inside_on_result_of_a_failure_waits_for_the_backoff(
    world: ResolverWorld,
) -> None:
    world.times = DnsTimes(floor_s=0)
    resolver = create(world)
    world.listener.react = resolver.request_reresolution
    resolver.start()
    await settle()
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(0.99)
    assert len(world.network.queries) == 1
    await world.advance(0.01)
    assert len(world.network.queries) == 2
    resolver.close()


async def test_listener_may_close_the_resolver_inside_on_result(world: ResolverWorld) -> None:
    resolver = create(world)
    world.listener.react = resolver.close
    resolver.start()
    await settle()
    await world.network.fail(NO_SUCH_NAME)
    await world.advance(1000)
    assert len(world.listener.results) == 1
    assert world.clock.timers_pending == 0


async def test_listener_that_raises_is_called_again_after_a_backoff(world: ResolverWorld) -> None:
    raised: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(context.get("exception")))
    error = RuntimeError("listener's bug")

    def react() -> None:
        raise error

    resolver = create(world)
    world.listener.react = react
    resolver.start()
    await settle()
    await world.network.respond("10.0.0.1:80")
    assert raised == [error], "the exception goes to the loop"
    world.listener.react = lambda: None
    await world.advance(1)
    await world.network.respond("10.0.0.1:80")
    assert len(world.listener.results) == 2
    resolver.close()


# Ends


async def test_closing_cancels_the_look_up_and_leaves_nothing(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    resolver.close()
    await settle()
    assert world.network.under_way == []
    assert world.clock.timers_pending == 0
    assert world.listener.results == []


async def test_answer_that_arrives_with_the_close_is_not_reported(world: ResolverWorld) -> None:
    resolver = create(world)
    resolver.start()
    await settle()
    world.network.under_way[0].set_result([IpAddress("10.0.0.1", 80)])
    resolver.close()
    await settle()
    assert world.listener.results == []


async def test_error_of_a_look_up_that_timed_out_is_ignored(world: ResolverWorld) -> None:
    class Stubborn:
        """Answers a cancellation with an error of its own."""

        async def resolve(self, host: str, port: int) -> list[IpAddress]:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise NO_SUCH_NAME from None
            return []

    context = world.context
    resolver = DnsResolver(
        NAME,
        80,
        DnsTimes(),
        world.listener,
        type(context)(Stubborn(), world.clock, context.random),  # type: ignore[arg-type]
    )
    resolver.start()
    await settle()
    resolver.close()
    await settle()
    assert world.listener.results == []


# Targets and options


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("dns", "8.8.8.8", "/host"), "authority '8.8.8.8' is not valid: wanted none, as in"),
        (Target("dns", "", "/a:b:80"), "name 'a:b:80' has host 'a:b:80': wanted host:port or"),
    ],
)
def test_a_malformed_target_is_rejected(
    world: ResolverWorld, target: Target, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"target '{target}': {expected}"):
        DnsFactory().create(target, world.listener, world.context)


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("dns:///host:80", "host:80"),
        ("host", "host"),
        ("dns:///::1", "[::1]"),
    ],
)
def test_the_default_authority_is_the_name(text: str, authority: str) -> None:
    factory, target = REGISTRY.match_target(text)
    assert factory.default_authority(target) == authority
