"""Short form of a mesh in files: a service, its routes and clusters, and its xDS resources.

schema    validator, and the JSON Schema in schema.json
routes    listener and route config
clusters  clusters and endpoints
places    from a field of a resource to the key of the document that it comes from

    service: orders
    routes:
    - to: {orders: 95, canary: 5}
      timeout: 2s
    clusters:
      orders: {endpoints: [10.0.0.1:8080, 10.0.0.2:8080]}
      canary: {endpoints: [10.0.1.1:8080]}

The resources are those of the builders in `proxyless.controlplane`, which use the same words. A
reference to a resource that is not in the document is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.controlplane.resource import Resource
from proxyless.controlplane.short_form.clusters import expand_cluster, expand_endpoints
from proxyless.controlplane.short_form.places import cluster_place
from proxyless.controlplane.short_form.routes import expand_service
from proxyless.controlplane.short_form.schema import check_document, short_form_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.base import ValidationErrors

__all__ = ["expand_document", "is_short_form", "short_form_schema"]

_MARKS: Final = ("service", "routes", "clusters")


def is_short_form(document: object) -> bool:
    """Whether a document without a type is meant to be in the short form."""
    return isinstance(document, dict) and any(mark in document for mark in _MARKS)


def expand_document(
    document: dict[str, Any], errors: ValidationErrors
) -> Iterator[tuple[str, Resource]]:
    """The resources of a document, each with its path there; none if the document is invalid."""
    count = errors.count
    check_document(document, errors)
    if errors.count > count:
        return
    if "service" in document:
        listener, routes = expand_service(document)
        yield ".service", Resource.of(listener)
        yield ".routes", Resource.of(routes)
    with errors.field("clusters"):
        for name, given in document.get("clusters", {}).items():
            with errors.key(name):
                if (cluster := expand_cluster(name, given, errors)) is not None:
                    yield cluster_place(name), Resource.of(cluster)
                if "endpoints" not in given:
                    continue
                if (found := expand_endpoints(name, given, errors)) is not None:
                    yield f"{cluster_place(name)}.endpoints", Resource.of(found)
