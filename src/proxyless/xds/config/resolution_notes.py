"""Resolution notes: why a cluster has no endpoints, or old ones (A74-39). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.xds.client.api import NoAnswer
from proxyless.xds.error_texts import NO_ENDPOINT, about, name_dns, name_endpoints
from proxyless.xds.resources import Cluster, EdsCluster, LogicalDnsCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Status
    from proxyless.xds.config.plan import ResourceState
    from proxyless.xds.resources import EndpointResource


def name_endpoints_of(name: str, cluster: Cluster) -> str:
    """Subject of texts about the endpoints of a leaf cluster."""
    discovery = cluster.discovery
    if isinstance(discovery, LogicalDnsCluster):
        return name_dns(discovery.host, discovery.port)
    assert isinstance(discovery, EdsCluster), "an aggregate is not a leaf"
    return name_endpoints(discovery.service_name or name)


def describe_endpoints(
    subject: str, state: ResourceState[EndpointResource], ambient: Mapping[str, Status]
) -> str:
    """The errors of the endpoints of a cluster, and ambient ones by subject; may be empty."""
    notes = []
    if state.resource is None:
        notes.append(about(subject, state.error.details))
    elif not state.resource.has_endpoints:
        notes.append(about(subject, NO_ENDPOINT))
    described = _describe_ambient({subject: state.ambient_error, **ambient})
    # The outage because of which there is no resource is in the first note.
    described.pop(state.error.details, None)
    return "; ".join([*notes, *described])


def _describe_ambient(errors: Mapping[str, Status]) -> dict[str, None]:
    """Texts of errors. An outage of a server affects all resources, and is named once."""
    notes: dict[str, None] = {}
    for subject, error in errors.items():
        if isinstance(error, NoAnswer):
            notes[error.details] = None
        elif not error.is_ok:
            notes[about(subject, error.details)] = None
    return notes
