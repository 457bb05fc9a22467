"""Picker that records the locality of a pick, for metrics.

Specs: A78. It writes into the dict of the RPC's attribute `lb.attributes.PICK_LABELS`, and is used
only on channels with a stats plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.lb.api import Complete
from proxyless.lb.attributes import PICK_LABELS
from proxyless.lb.pickers import ForwardingPicker
from proxyless.metrics.instruments import LOCALITY

if TYPE_CHECKING:
    from proxyless.base import Locality
    from proxyless.lb.api import PickInfo, PickResult


class SubchannelWithLocality(Protocol):
    """The type of the subchannels that `LocalityPicker` gets from its child."""

    locality: Locality


class LocalityPicker(ForwardingPicker):
    """Records the locality of the picked backend (A78)."""

    __slots__ = ()

    def pick(self, info: PickInfo) -> PickResult:
        result = self._child.pick(info)
        if type(result) is Complete:
            labels = info.attributes.get(PICK_LABELS)
            if labels is not None:
                subchannel: SubchannelWithLocality = result.subchannel  # type: ignore[assignment]
                labels[LOCALITY] = subchannel.locality.label
        return result
