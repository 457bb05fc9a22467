"""Rules that every policy must keep, and the error for a broken one.

The rules are the contract of `lb.api` as far as it can be checked. `Traits` declare the
exceptions of unusual policies.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NoReturn

from proxyless.base.frozen import frozen


class Rule(Enum):
    """A rule; the value is its text."""

    READY_PICKS = (
        "a pick completes only on a subchannel that is READY and not released, and healthy if the "
        "policy watches its health: when the picker is reported, and as long as it is the newest"
    )
    OWN_SUBCHANNELS = "a pick completes only on a subchannel that the policy's own helper made"
    LISTED_PICKS = (
        "a pick completes only on an address of the last list that was not rejected, or, for 30 s "
        "at most and while no pick completes on one of those, on an address of an earlier list"
    )
    PICKS_CHANGE_NOTHING = "a pick calls neither helper nor subchannels: it starts a timer instead"
    HONEST_REPORTS = (
        "the reported state is IDLE, CONNECTING, READY or TRANSIENT_FAILURE, and the picker's "
        "status is not OK only with the latter; a pick returns a result, and fails with a status "
        "other than OK"
    )
    REPORTS_PER_CALL = (
        "a policy reports after its first update; it reports at most once in an update, and at "
        "most twice in any other call"
    )
    STICKY_FAILURE = (
        "TRANSIENT_FAILURE changes only to READY, not to CONNECTING or IDLE, unless there are "
        "new endpoints"
    )
    EMPTY_LIST = "an update without endpoints is rejected, and RPCs fail from then on"
    RESOLVER_ERROR = (
        "an update with a resolver error is rejected; RPCs fail with it if there are no endpoints"
    )
    REFUSED_UPDATE = (
        "if there are endpoints from before, a rejected update changes neither state nor "
        "subchannels, and RPCs continue; an empty list is the exception"
    )
    RERESOLUTION = (
        "re-resolution is requested when a connection that RPCs used is lost, and when "
        "connection failures lead to TRANSIENT_FAILURE"
    )
    EXIT_IDLE = "a policy that is IDLE connects after exit_idle, and after a pick"
    RESET_BACKOFF = "reset_backoff reaches every subchannel that waits after a failure"
    NO_REENTRANCY = "no child is called inside its own call to its parent, but after it"
    RELEASED_IS_GONE = "a subchannel that was released is not called again"
    QUIET_BEFORE_UPDATE = "a policy does nothing before its first update"
    CLOSED = (
        "a closed policy has released every subchannel, cancelled every timer and closed every "
        "child, and makes no calls, not even if an old picker is used"
    )
    RECOVERS = "when every attempt succeeds, RPCs are sent after a while"
    NO_RECURSION = "the depth of the stack does not depend on the number of endpoints"
    RAISES_NOTHING = "no method of a policy raises"
    CONFIG = "parse_config adds to its errors: it neither raises nor changes its input"
    REPEATABLE = "a policy uses the clock and random source of its context, so runs are repeatable"


@frozen
class Reproduction:
    """Steps that lead to a broken rule."""

    policy: str
    # The seed or the scenario.
    origin: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = (f"  {number}. {step}" for number, step in enumerate(self.steps, start=1))
        return "\n".join([f"policy {self.policy!r}, {self.origin}", *lines])


class ConformanceError(AssertionError):
    """A policy breaks a rule. The text has the rule, the observation and the steps."""

    def __init__(self, rule: Rule, observed: str, reproduction: Reproduction | None = None) -> None:
        super().__init__(rule, observed, reproduction)
        self.rule = rule
        self.observed = observed
        self.reproduction = reproduction

    def __str__(self) -> str:
        text = f"{self.observed}\nrule {self.rule.name}: {self.rule.value}"
        return text if self.reproduction is None else f"{text}\n{self.reproduction}"


# Raises ConformanceError, given the rule and the observation.
OnBroken = Callable[[Rule, str], NoReturn]
