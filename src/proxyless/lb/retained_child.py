"""A child with a name, which is kept for a while after it is no longer needed.

Specs: A56 "Child Lifetime Management", A28. Used by priority and weighted_target.

A child that rests keeps its policy, and with that its connections: who needs it again before the
retention timer fires finds it as it was. Whether it is needed is for its parent to say.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from proxyless.base import OK, Address, Attributes, Status, StatusCode
from proxyless.lb.api import Endpoints, Helper, Subchannel, Update
from proxyless.lb.attributes import HOLDER, IS_LISTED_AGAIN
from proxyless.lb.config import PolicyConfig
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.view import in_seconds, left_s
from proxyless.runtime import IDLE_TIMER

RETENTION_S: Final = 15 * 60.0

# Said of a child that is there only because it was needed before.
NOT_LISTED: Final = "not in the config any more"


class RetainedChild(ForwardingHelper):
    """A policy, which may change its kind, and its helper. Parents override what they want to hear.

    Driven by its parent, its policy and the retention timer.
    """

    # What its changes are called in the trace.
    trace_name: ClassVar[str]

    __slots__ = ("_is_listed", "_on_expired", "_retention_timer", "name", "policy")

    def __init__(self, parent: Helper, name: str, on_expired: Callable[[str], None]) -> None:
        super().__init__(parent)
        # Fixed at construction.
        self.name: Final = name
        self.policy: Final = GracefulSwitch(self)
        self._on_expired: Final = on_expired
        # False from the time at which its parent's config does not list it, to the next update.
        self._is_listed = True
        # Pending while the child rests.
        self._retention_timer = IDLE_TIMER
        self.trace("created")

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        # An inner retained child has set it already.
        if attributes.get(HOLDER) is None:
            attributes = attributes.with_(HOLDER, self)
        return super().create_subchannel(address, attributes)

    def update_policy(
        self, whole: Update, endpoints: Endpoints, config: PolicyConfig
    ) -> Sequence[str]:
        """Send its part of an update. Returns why it cannot use it, if so, as a list."""
        if not self._is_listed:
            self._is_listed = True
            whole = whole.with_attributes(whole.attributes.with_(IS_LISTED_AGAIN, value=True))
        status = self.policy.update_child(whole, config, endpoints)
        if status is OK or status.is_ok:
            return ()
        return (f"child {self.name!r}: {status.details}",)

    def unlist(self) -> None:
        """The parent's config does not list the child any more. Idempotent."""
        self._is_listed = False
        self.deactivate()

    def deactivate(self) -> None:
        """Rest. Does nothing if it does already: the time that is left gets no longer."""
        if not self._retention_timer.pending:
            clock = self.context.clock
            self._retention_timer = clock.call_later(RETENTION_S, self._on_retention_over)
            self.trace("deactivated")

    def reactivate(self) -> None:
        if self._retention_timer.pending:
            self._retention_timer.cancel()
            self.trace("reactivated")

    def close(self) -> None:
        self._retention_timer.cancel()
        self.policy.close()
        self.trace("destroyed")

    @property
    def retention_note(self) -> str:
        """How long it still rests; empty if it does not."""
        if not self._retention_timer.pending:
            return ""
        return f"retained {in_seconds(left_s(self._retention_timer, self.context.clock.now_s()))}"

    def trace(self, change: str) -> None:
        trace = self.context.trace
        if trace.active:
            trace.emit(self.trace_name, child=self.name, change=change)

    def _on_retention_over(self) -> None:
        self._on_expired(self.name)


def join_rejections(rejections: Sequence[str]) -> Status:
    """The result of an update that these children could not use."""
    if not rejections:
        return OK
    return Status(StatusCode.UNAVAILABLE, f"errors from children: [{'; '.join(rejections)}]")
