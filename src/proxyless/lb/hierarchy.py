"""Distribution of endpoints to the children of a policy.

Specs: A56 "Hierarchical Addresses".

An endpoint has a path: the name of the child that gets it, the name of that child's child, and so
on. A parent groups the endpoints by the first name and removes it from the paths.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxyless.base import Attributes, Endpoint, Key, Status
from proxyless.base.frozen import frozen
from proxyless.lb.api import Endpoints

Path = tuple[str, ...]

_PATH: Final = Key[Path]("hierarchical_path")


def path_of(endpoint: Endpoint) -> Path:
    return endpoint.attributes.get(_PATH) or ()


def with_path(endpoint: Endpoint, path: Path) -> Endpoint:
    """Return the endpoint with this path; an empty path removes the attribute."""
    attributes = endpoint.attributes
    return Endpoint(
        endpoint.addresses, attributes.with_(_PATH, path) if path else without_path(attributes)
    )


def without_path(attributes: Attributes) -> Attributes:
    return attributes.without(_PATH)


@frozen(eq=False)
class Split:
    """Endpoints by child name, with a cache that makes the next split cheap."""

    error: Status | None = None
    children: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    # By id of an endpoint: the endpoint (a reference, so that the id is not reused), the name of
    # the child, and the endpoint for the child.
    cache: Mapping[int, tuple[Endpoint, str, Endpoint]] = field(default_factory=dict)

    def endpoints_of(self, child: str) -> Endpoints:
        """Return the endpoints of the child's update, or the resolver's error."""
        return self.error if self.error is not None else self.children.get(child, ())


NO_SPLIT: Final = Split()


def split_by_child(endpoints: Endpoints, before: Split = NO_SPLIT) -> Split:
    """Group by the first name of the paths; endpoints without a path are left out.

    `before` only provides the cache: an endpoint that is the same object as before results in the
    same object for the child, so that the child can compare lists by identity.
    """
    if isinstance(endpoints, Status):
        return Split(error=endpoints)
    cache: dict[int, tuple[Endpoint, str, Endpoint]] = {}
    lists: dict[str, list[Endpoint]] = {}
    by_attributes: dict[int, tuple[str, Attributes]] = {}
    for endpoint in endpoints:
        entry = before.cache.get(id(endpoint)) or _strip_first_name(endpoint, by_attributes)
        if entry is not None:
            cache[id(endpoint)] = entry
            lists.setdefault(entry[1], []).append(entry[2])
    return Split(children={name: tuple(found) for name, found in lists.items()}, cache=cache)


def _strip_first_name(
    endpoint: Endpoint, by_attributes: dict[int, tuple[str, Attributes]]
) -> tuple[Endpoint, str, Endpoint] | None:
    """Return the cache entry of an endpoint; None without a path. New attributes stay shared."""
    attributes = endpoint.attributes
    stripped = by_attributes.get(id(attributes))
    if stripped is None:
        path = path_of(endpoint)
        if not path:
            return None
        stripped = (path[0], with_path(endpoint, path[1:]).attributes)
        by_attributes[id(attributes)] = stripped
    child, child_attributes = stripped
    return (endpoint, child, Endpoint(endpoint.addresses, child_attributes))
