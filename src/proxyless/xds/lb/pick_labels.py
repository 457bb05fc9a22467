"""What do the policies of a cluster tell whoever measures an RPC?

Specs: A78 (locality), A89 (backend service).

Pickers that say where an RPC goes, each time it is picked for. They are there only on channels that
somebody measures; an RPC brings where to write it (`lb.attributes.PICK_LABELS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.lb.api import Complete, Picker
from proxyless.lb.attributes import PICK_LABELS
from proxyless.metrics.instruments import BACKEND_SERVICE, LOCALITY

if TYPE_CHECKING:
    from proxyless.base import Locality, Status
    from proxyless.lb.api import PickInfo, PickResult


class ServicePicker(Picker):
    """Says which cluster picks. That of a leaf: of an aggregate, one of several (A89)."""

    __slots__ = ("_cluster", "_picker")

    def __init__(self, picker: Picker, cluster: str) -> None:
        self._picker: Final = picker
        self._cluster: Final = cluster

    def pick(self, info: PickInfo) -> PickResult:
        # "each pick that the information is available, regardless of the pick's result" - A89
        labels = info.attributes.get(PICK_LABELS)
        if labels is not None:
            labels[BACKEND_SERVICE] = self._cluster
        return self._picker.pick(info)

    @property
    def status(self) -> Status:
        return self._picker.status


class Located(Protocol):
    """A subchannel that knows where its backend is."""

    locality: Locality


class LocalityPicker(Picker):
    """Says where the backend is that was picked (A78). The picker's subchannels are `Located`."""

    __slots__ = ("_picker",)

    def __init__(self, picker: Picker) -> None:
        self._picker: Final = picker

    def pick(self, info: PickInfo) -> PickResult:
        result = self._picker.pick(info)
        if type(result) is Complete:
            labels = info.attributes.get(PICK_LABELS)
            if labels is not None:
                subchannel: Located = result.subchannel  # type: ignore[assignment]
                labels[LOCALITY] = subchannel.locality.label
        return result

    @property
    def status(self) -> Status:
        return self._picker.status
