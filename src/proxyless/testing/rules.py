"""What must every policy do, and how is it said that one does not?

The rules are what `lb.api` promises to a channel and to parents, as far as it can be seen from
outside. Which of them bends for an unusual policy is said by its `Traits`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NoReturn

from proxyless.base.frozen import frozen


class Rule(Enum):
    """One rule each; the value says it in a sentence."""

    READY_PICKS = (
        "a pick completes only on a subchannel that is READY and not released, and healthy if the "
        "policy watches its health: when the picker is reported, and as long as it is the newest"
    )
    OWN_SUBCHANNELS = "a pick completes only on a subchannel that the policy's own helper made"
    LISTED_PICKS = (
        "a pick completes only on an address of the newest list that was not refused, or, for 30 s "
        "at most and as long as no pick completes on one of those, of a list before it"
    )
    PICKS_CHANGE_NOTHING = "a pick calls nobody: what it wants is done soon after, by a timer"
    HONEST_REPORTS = (
        "a report says IDLE, CONNECTING, READY or TRANSIENT_FAILURE, and only with the last one "
        "the picker's status is not OK; a pick gives a result, and fails with a status other "
        "than OK"
    )
    REPORTS_PER_CALL = (
        "the first update is answered by a report; an update never by more than one, and "
        "anything else that a policy is told by at most two"
    )
    STICKY_FAILURE = (
        "TRANSIENT_FAILURE is left only for READY, not for CONNECTING or IDLE, unless there are "
        "new endpoints"
    )
    EMPTY_LIST = "an update without endpoints is refused, and RPCs fail from then on"
    RESOLVER_ERROR = (
        "an error in place of endpoints is refused; RPCs fail with it if there are none"
    )
    REFUSED_UPDATE = (
        "a refused update changes neither state nor subchannels, and RPCs go on, if there are "
        "endpoints from before; a list without endpoints is the exception"
    )
    RERESOLUTION = (
        "re-resolution is requested when a connection that RPCs used is lost, and when "
        "connection failures lead to TRANSIENT_FAILURE"
    )
    EXIT_IDLE = "a policy that is IDLE connects when it is told to, and when there is a pick"
    RESET_BACKOFF = "reset_backoff reaches every subchannel that waits after a failure"
    NO_REENTRANCY = "no child is called while it is calling its parent: that is done soon after"
    RELEASED_IS_GONE = "a subchannel that was released is not called again"
    QUIET_BEFORE_UPDATE = "a policy does nothing before its first update"
    CLOSED = (
        "a closed policy has released every subchannel, cancelled every timer and closed every "
        "child, and calls nobody, not even if an old picker is used"
    )
    RECOVERS = "when every attempt succeeds and RPCs keep coming, RPCs get through"
    NO_RECURSION = "however many endpoints there are, the stack does not grow with them"
    RAISES_NOTHING = "nothing that a policy is told makes it raise"
    CONFIG = "parse_config says in its errors what is wrong: it raises nothing, and changes nothing"
    REPEATABLE = "a policy takes time and chance from its context, so that a run can be repeated"


@frozen
class Story:
    """How it came to that."""

    policy: str
    # Where the steps come from: a seed, or a scenario.
    origin: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = (f"  {number}. {step}" for number, step in enumerate(self.steps, start=1))
        return "\n".join([f"policy {self.policy!r}, {self.origin}", *lines])


class ConformanceError(AssertionError):
    """A policy breaks a rule. The text says which, what was seen, and the steps that led there."""

    def __init__(self, rule: Rule, seen: str, story: Story | None = None) -> None:
        super().__init__(rule, seen, story)
        self.rule = rule
        self.seen = seen
        self.story = story

    def __str__(self) -> str:
        text = f"{self.seen}\nrule {self.rule.name}: {self.rule.value}"
        return text if self.story is None else f"{text}\n{self.story}"


# Raises ConformanceError: the rule, and what was seen.
OnBroken = Callable[[Rule, str], NoReturn]
