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
    # By id of an endpoint's attributes; new attributes stay shared, too.
    stripped_of: dict[int, tuple[str, Attributes] | None] = {}
    cached = before.cache
    # One function call per endpoint: there may be thousands, and this runs at several levels.
    for endpoint in endpoints:
        entry = cached.get(id(endpoint))
        if entry is None:
            attributes = endpoint.attributes
            if id(attributes) in stripped_of:
                stripped = stripped_of[id(attributes)]
            else:
                stripped = stripped_of[id(attributes)] = _strip_first_name(endpoint)
            if stripped is None:
                continue
            entry = (endpoint, stripped[0], Endpoint(endpoint.addresses, stripped[1]))
        cache[id(endpoint)] = entry
        name = entry[1]
        if name in lists:
            lists[name].append(entry[2])
        else:
            lists[name] = [entry[2]]
    return Split(children={name: tuple(found) for name, found in lists.items()}, cache=cache)


def _strip_first_name(endpoint: Endpoint) -> tuple[str, Attributes] | None:
    """Return the first name of the path, and the attributes without it; None without a path."""
    path = path_of(endpoint)
    return (path[0], with_path(endpoint, path[1:]).attributes) if path else None
