"""Which stories does every policy have to live through?

Each is a list of steps; it is also cut short after every step, because a policy may be closed at
any time. What must be true on the way is the business of the world.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxyless.base import State
from proxyless.testing.steps import (
    Advance,
    AtOnce,
    Become,
    BecomeHealthy,
    Calm,
    Close,
    ConnectElsewhere,
    ExitIdle,
    KeepWaiting,
    Names,
    Pick,
    ResetBackoff,
    Resolve,
    ResolverError,
    Step,
)

# A policy that goes through its endpoints by recursion runs out of this stack.
ENDPOINTS_MANY: Final = 250
STACK_FRAMES_MAX: Final = 200

IDLE, CONNECTING, READY = State.IDLE, State.CONNECTING, State.READY
FAILURE = State.TRANSIENT_FAILURE


def resolve(names: str, revision: int = 0) -> Resolve:
    """Endpoints as a step prints them: `a b,b6` is one of one address, and one of two."""
    return Resolve(tuple(tuple(each.split(",")) for each in names.split()), revision)


# Enough of both for a policy that tries one address of four after the other.
ALL_FAIL: Final = (Pick(), *(Become(CONNECTING), Become(FAILURE)) * 4)
ALL_CONNECT: Final = (Pick(), Become(CONNECTING), Become(READY))

SCENARIOS: Final[Mapping[str, Sequence[Step]]] = {
    "IDLE is left when somebody asks": (
        resolve("a b"),
        ExitIdle(),
        *ALL_CONNECT,
        Become(IDLE),
        ExitIdle(),
        Calm(),
        Become(IDLE),
        Advance(600),
        Pick(3),
        Calm(),
        Become(IDLE),
        resolve("b c"),
        ExitIdle(),
        Calm(),
    ),
    "several things happen at once": (
        resolve("a b c"),
        *ALL_CONNECT,
        AtOnce(Become(IDLE), resolve("a b c d")),
        Calm(),
        AtOnce(Become(IDLE), Pick(2)),
        Calm(),
        AtOnce(Become(IDLE), Resolve(())),
        resolve("a b"),
        Calm(),
        Become(IDLE),
        AtOnce(Pick(), resolve("b c")),
        Calm(),
        Become(IDLE),
        AtOnce(Pick(), Resolve(())),
        resolve("a"),
        *ALL_FAIL,
        AtOnce(Become(IDLE), resolve("a b")),
        Calm(),
        AtOnce(Become(FAILURE), ExitIdle()),
        Calm(),
    ),
    "connections come and go": (
        resolve("a b c"),
        *ALL_CONNECT,
        Pick(6),
        Advance(1),
        *(Become(IDLE, (name,)) for name in "abc"),
        Calm(),
        Become(FAILURE),
        Calm(),
        Become(IDLE),
        Calm(),
    ),
    "every address fails, again and again": (
        resolve("a b c,c6"),
        *ALL_FAIL,
        Pick(2),
        ResetBackoff(),
        ExitIdle(),
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
        Calm(),
        Become(IDLE),
        *ALL_FAIL,
    ),
    "there are no endpoints": (
        Resolve(()),
        Pick(2),
        ExitIdle(),
        ResetBackoff(),
        resolve("a b"),
        Calm(),
        Resolve(()),
        Pick(2),
        ResolverError("still nothing"),
        resolve("a"),
        *ALL_FAIL,
        Resolve(()),
        resolve("a"),
        Calm(),
        Become(IDLE),
        Resolve(()),
        resolve("b"),
        Calm(),
    ),
    "the resolver has trouble": (
        ResolverError("no such host"),
        Pick(2),
        ResolverError("name server is down"),
        ExitIdle(),
        resolve("a b"),
        ResolverError("while connecting"),
        Become(CONNECTING),
        ResolverError("while connecting, too"),
        Calm(),
        ResolverError("while ready"),
        Pick(4),
        Become(IDLE),
        ResolverError("while idle"),
        *ALL_FAIL,
        ResolverError("while failing"),
        Calm(),
    ),
    "the list changes": (
        resolve("a b"),
        Calm(),
        resolve("a b"),
        resolve("b a"),
        resolve("b c"),
        Become(CONNECTING),
        resolve("c d a"),
        Calm(),
        resolve("c d a", revision=1),
        resolve("c,c6 d a,b", revision=1),
        Calm(),
        resolve("c6,c d d a,b", revision=2),
        Pick(8),
        resolve("e f"),
        Calm(),
        resolve("f"),
        Become(IDLE),
        resolve("g"),
        resolve("g h"),
        Calm(),
    ),
    "RPCs are waiting": (
        KeepWaiting(3),
        resolve("a b c"),
        *ALL_CONNECT,
        Become(IDLE),
        Advance(1),
        Calm(),
        resolve("b c d"),
        Become(FAILURE),
        *ALL_FAIL,
        ResolverError(),
        Resolve(()),
        resolve("a"),
        Calm(),
    ),
    "others share the connections": (
        ConnectElsewhere(READY, ("a", "b")),
        ConnectElsewhere(FAILURE, ("c", "d")),
        ConnectElsewhere(CONNECTING, ("e",)),
        resolve("c d"),
        Pick(2),
        ResetBackoff(),
        resolve("c a e"),
        Pick(2),
        Become(READY),
        resolve("c a,b e", revision=1),
        Pick(4),
        Become(CONNECTING, ("a",)),
        Become(IDLE, ("b",)),
        resolve("b e"),
        Become(FAILURE),
        Calm(),
    ),
    "backends are not serving": (
        resolve("a b"),
        Calm(),
        BecomeHealthy(FAILURE, "a"),
        Pick(4),
        BecomeHealthy(FAILURE, "b"),
        Pick(4),
        BecomeHealthy(CONNECTING, "a"),
        BecomeHealthy(READY, "a"),
        Pick(4),
        BecomeHealthy(CONNECTING, "a"),
        Become(IDLE, ("b",)),
        Calm(),
    ),
}

_MANY: Final[tuple[Names, ...]] = tuple((str(number),) for number in range(ENDPOINTS_MANY))
_MANY_MORE: Final[tuple[Names, ...]] = tuple(
    (str(number),) for number in range(ENDPOINTS_MANY, 2 * ENDPOINTS_MANY)
)

# Run as a whole only, on a short stack.
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
    ExitIdle(),
    ResetBackoff(),
    # Their states are told as soon as they are watched, one inside another if they are unlucky.
    ConnectElsewhere(FAILURE, tuple(name for (name,) in _MANY_MORE)),
    Resolve(_MANY_MORE),
    Pick(),
    Become(IDLE),
    Become(CONNECTING),
    Become(READY),
    Resolve(_MANY[:1]),
    Resolve(_MANY_MORE),
    Close(),
)


def every_ending(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The story, closed after each of its steps; when all is quiet, and while RPCs come."""
    for length in range(len(steps) + 1):
        yield [*steps[:length], Close()]
        yield [*steps[:length], AtOnce(Pick(), Close())]
