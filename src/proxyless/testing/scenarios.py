"""Scenarios: fixed lists of steps that every policy is tested with.

Each scenario is also cut short after every step, because a policy may be closed at any time. The
harness checks the rules.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxyless.base import State
from proxyless.testing.steps import (
    Action,
    Advance,
    AtOnce,
    Become,
    ChangeHealth,
    Names,
    Pick,
    QueueRpcs,
    Resolve,
    ResolverError,
    ShareConnection,
    Step,
)

# A policy that recurses over its endpoints exceeds this stack.
ENDPOINTS_MANY: Final = 250
STACK_FRAMES_MAX: Final = 200

IDLE, CONNECTING, READY = State.IDLE, State.CONNECTING, State.READY
FAILURE = State.TRANSIENT_FAILURE


def resolve(names: str, revision: int = 0) -> Resolve:
    """Parse endpoints as a step prints them: `a b,b6` has one address, then two."""
    return Resolve(tuple(tuple(each.split(",")) for each in names.split()), revision)


# Enough changes for a policy that attempts four addresses one by one.
ALL_FAIL: Final = (Pick(), *(Become(CONNECTING), Become(FAILURE)) * 4)
ALL_CONNECT: Final = (Pick(), Become(CONNECTING), Become(READY))

SCENARIOS: Final[Mapping[str, Sequence[Step]]] = {
    "IDLE is left on request": (
        resolve("a b"),
        Action.EXIT_IDLE,
        *ALL_CONNECT,
        Become(IDLE),
        Action.EXIT_IDLE,
        Action.RECOVER,
        Become(IDLE),
        Advance(600),
        Pick(3),
        Action.RECOVER,
        Become(IDLE),
        resolve("b c"),
        Action.EXIT_IDLE,
        Action.RECOVER,
    ),
    "several things happen at once": (
        resolve("a b c"),
        *ALL_CONNECT,
        AtOnce(Become(IDLE), resolve("a b c d")),
        Action.RECOVER,
        AtOnce(Become(IDLE), Pick(2)),
        Action.RECOVER,
        AtOnce(Become(IDLE), Resolve(())),
        resolve("a b"),
        Action.RECOVER,
        Become(IDLE),
        AtOnce(Pick(), resolve("b c")),
        Action.RECOVER,
        Become(IDLE),
        AtOnce(Pick(), Resolve(())),
        resolve("a"),
        *ALL_FAIL,
        AtOnce(Become(IDLE), resolve("a b")),
        Action.RECOVER,
        AtOnce(Become(FAILURE), Action.EXIT_IDLE),
        Action.RECOVER,
    ),
    "connections come and go": (
        resolve("a b c"),
        *ALL_CONNECT,
        Pick(6),
        Advance(1),
        *(Become(IDLE, (name,)) for name in "abc"),
        Action.RECOVER,
        Become(FAILURE),
        Action.RECOVER,
        Become(IDLE),
        Action.RECOVER,
    ),
    "every address fails, again and again": (
        resolve("a b c,c6"),
        *ALL_FAIL,
        Pick(2),
        Action.RESET_BACKOFF,
        Action.EXIT_IDLE,
        Become(IDLE),
        Become(CONNECTING),
        Advance(20),
        Become(FAILURE),
        Become(IDLE),
        *ALL_FAIL,
        resolve("a b c,c6"),
        Become(IDLE),
        Become(CONNECTING, ("b",)),
        Become(IDLE, ("b",)),
        resolve("a b d"),
        *ALL_FAIL,
        Become(IDLE),
        Action.RECOVER,
        Become(IDLE),
        *ALL_FAIL,
    ),
    "there are no endpoints": (
        Resolve(()),
        Pick(2),
        Action.EXIT_IDLE,
        Action.RESET_BACKOFF,
        resolve("a b"),
        Action.RECOVER,
        Resolve(()),
        Pick(2),
        ResolverError("still nothing"),
        resolve("a"),
        *ALL_FAIL,
        Resolve(()),
        resolve("a"),
        Action.RECOVER,
        Become(IDLE),
        Resolve(()),
        resolve("b"),
        Action.RECOVER,
    ),
    "the resolver has errors": (
        ResolverError("no such host"),
        Pick(2),
        ResolverError("name server is down"),
        Action.EXIT_IDLE,
        resolve("a b"),
        ResolverError("while connecting"),
        Become(CONNECTING),
        ResolverError("while connecting, too"),
        Action.RECOVER,
        ResolverError("while ready"),
        Pick(4),
        Become(IDLE),
        ResolverError("while idle"),
        *ALL_FAIL,
        ResolverError("while failing"),
        Action.RECOVER,
    ),
    "the list changes": (
        resolve("a b"),
        Action.RECOVER,
        resolve("a b"),
        resolve("b a"),
        resolve("b c"),
        Become(CONNECTING),
        resolve("c d a"),
        Action.RECOVER,
        resolve("c d a", revision=1),
        resolve("c,c6 d a,b", revision=1),
        Action.RECOVER,
        resolve("c6,c d d a,b", revision=2),
        Pick(8),
        resolve("e f"),
        Action.RECOVER,
        resolve("f"),
        Become(IDLE),
        resolve("g"),
        resolve("g h"),
        Action.RECOVER,
    ),
    "RPCs are waiting": (
        QueueRpcs(3),
        resolve("a b c"),
        *ALL_CONNECT,
        Become(IDLE),
        Advance(1),
        Action.RECOVER,
        resolve("b c d"),
        Become(FAILURE),
        *ALL_FAIL,
        ResolverError(),
        Resolve(()),
        resolve("a"),
        Action.RECOVER,
    ),
    "connections are shared": (
        ShareConnection(READY, ("a", "b")),
        ShareConnection(FAILURE, ("c", "d")),
        ShareConnection(CONNECTING, ("e",)),
        resolve("c d"),
        Pick(2),
        Action.RESET_BACKOFF,
        resolve("c a e"),
        Pick(2),
        Become(READY),
        resolve("c a,b e", revision=1),
        Pick(4),
        Become(CONNECTING, ("a",)),
        Become(IDLE, ("b",)),
        resolve("b e"),
        Become(FAILURE),
        Action.RECOVER,
    ),
    "backends are not serving": (
        resolve("a b"),
        Action.RECOVER,
        ChangeHealth(FAILURE, "a"),
        Pick(4),
        ChangeHealth(FAILURE, "b"),
        Pick(4),
        ChangeHealth(CONNECTING, "a"),
        ChangeHealth(READY, "a"),
        Pick(4),
        ChangeHealth(CONNECTING, "a"),
        Become(IDLE, ("b",)),
        Action.RECOVER,
    ),
}

_MANY: Final[tuple[Names, ...]] = tuple((str(number),) for number in range(ENDPOINTS_MANY))
_MANY_MORE: Final[tuple[Names, ...]] = tuple(
    (str(number),) for number in range(ENDPOINTS_MANY, 2 * ENDPOINTS_MANY)
)

# Not cut short. Runs with a low recursion limit.
MANY_ENDPOINTS: Final[Sequence[Step]] = (
    Resolve(_MANY),
    Pick(),
    Become(CONNECTING),
    Become(FAILURE),
    Become(IDLE),
    Become(CONNECTING),
    Become(READY),
    Pick(4),
    Become(IDLE),
    Resolve(_MANY[::-1]),
    Action.EXIT_IDLE,
    Action.RESET_BACKOFF,
    # The states are published inside `watch`, so that a flawed policy recurses.
    ShareConnection(FAILURE, tuple(name for (name,) in _MANY_MORE)),
    Resolve(_MANY_MORE),
    Pick(),
    Become(IDLE),
    Become(CONNECTING),
    Become(READY),
    Resolve(_MANY[:1]),
    Resolve(_MANY_MORE),
    Action.CLOSE,
)


def every_ending(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the scenario, closed after each of its steps, with and without a pick before."""
    for length in range(len(steps) + 1):
        yield [*steps[:length], Action.CLOSE]
        yield [*steps[:length], AtOnce(Pick(), Action.CLOSE)]
