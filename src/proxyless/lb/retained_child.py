"""Named child of a policy that is kept for 15 minutes after its last use.

Specs: A56 "Child Lifetime Management", A28. Used by priority, weighted_target and cluster_manager.

A deactivated child keeps its policy and connections, so that it can be used at once when it is
reactivated before the retention timer fires. The parent decides when it is deactivated.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from proxyless.base import EMPTY_ATTRIBUTES, OK, Address, Attributes, Status, StatusCode
from proxyless.lb.api import Endpoints, Helper, Subchannel, Update
from proxyless.lb.attributes import HOLDER, IS_LISTED_AGAIN
from proxyless.lb.config import PolicyConfig
from proxyless.lb.description import format_time_left
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.lb.graceful_switch import GracefulSwitchPolicy
from proxyless.runtime import IDLE_TIMER

RETENTION_S: Final = 15 * 60.0

# Description of a child that is only retained.
NOT_LISTED: Final = "not in the config any more"


class RetainedChild(ForwardingHelper):
    """Child policy, its helper and its retention timer. Parents override helper methods."""

    # The name of its trace events.
    trace_name: ClassVar[str]

    __slots__ = (
        "_is_listed",
        "_last_attributes",
        "_on_expired",
        "_retention_timer",
        "name",
        "policy",
    )

    def __init__(self, parent: Helper, name: str, on_expired: Callable[[str], None]) -> None:
        super().__init__(parent)
        # Fixed at construction.
        self.name: Final = name
        self.policy: Final = GracefulSwitchPolicy(self)
        self._on_expired: Final = on_expired
        # Whether the parent's last config contains the child.
        self._is_listed = True
        # Pending while the child is deactivated.
        self._retention_timer = IDLE_TIMER
        # The last attributes of a subchannel, as they came and with a holder. Endpoints share them.
        self._last_attributes = (EMPTY_ATTRIBUTES, EMPTY_ATTRIBUTES.with_(HOLDER, self))
        self.trace("created")

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        if attributes is not self._last_attributes[0]:
            # A retained child below this one has set it already.
            has_holder = attributes.get(HOLDER) is not None
            held = attributes if has_holder else attributes.with_(HOLDER, self)
            self._last_attributes = (attributes, held)
        return self._parent.create_subchannel(address, self._last_attributes[1])

    def update_policy(
        self, whole: Update, endpoints: Endpoints, config: PolicyConfig
    ) -> Sequence[str]:
        """Update the policy with its part of `whole`. Returns its rejection, if any, as a list."""
        if not self._is_listed:
            self._is_listed = True
            whole = whole.with_attributes(whole.attributes.with_(IS_LISTED_AGAIN, value=True))
        status = self.policy.update_child(whole, config, endpoints)
        if status is OK or status.is_ok:
            return ()
        return (f"child {self.name!r}: {status.details}",)

    def unlist(self) -> None:
        """Deactivate the child because the parent's config does not contain it. Idempotent."""
        self._is_listed = False
        self.deactivate()

    def deactivate(self) -> None:
        """Start the retention timer, unless it is running: it is never extended."""
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
        """Text for descriptions: the remaining retention time; empty if the child is active."""
        if not self._retention_timer.pending:
            return ""
        return f"retained {format_time_left(self._retention_timer, self.context.clock.now_s())}"

    def trace(self, change: str) -> None:
        trace = self.context.trace
        if trace.active:
            trace.emit(self.trace_name, child=self.name, change=change)

    def _on_retention_over(self) -> None:
        self._on_expired(self.name)


def join_rejections(rejections: Sequence[str]) -> Status:
    """Return the result of an update that these children rejected."""
    if not rejections:
        return OK
    return Status(StatusCode.UNAVAILABLE, f"errors from children: [{'; '.join(rejections)}]")
