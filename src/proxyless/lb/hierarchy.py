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
from proxyless.runtime import Work

Path = tuple[str, ...]

_PATH: Final = Key[Path]("hierarchical_path")

# Each endpoint that is converted, split or compared is a unit of `runtime.work_queue`, if there are
# more than this.
UNCHARGED_ENDPOINTS_MAX: Final = 9


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


def charge_for(endpoints: Endpoints, work: Work) -> None:
    """Count a step of an update that takes all its endpoints at once.

    The jobs of the next step, of children, then wait for the next turn if there are many.
    """
    if not isinstance(endpoints, Status) and len(endpoints) > UNCHARGED_ENDPOINTS_MAX:
        work.charge(len(endpoints))


@frozen(eq=False)
class Split:
    """Endpoints by child name, with a cache that makes the next split cheap."""

    error: Status | None = None
    children: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    # The endpoint for the child, by id of the endpoint; and the child's name, None without a path,
    # by id of its attributes. The source keeps them alive, so that their ids stay unique.
    cache: Mapping[int, Endpoint] = field(default_factory=dict)
    names: Mapping[int, str | None] = field(default_factory=dict)
    source: tuple[Endpoint, ...] = ()

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
    cache: dict[int, Endpoint] = {}
    names: dict[int, str | None] = {}
    lists: dict[str | None, list[Endpoint]] = {}
    # By id of an endpoint's attributes: new attributes stay shared, too.
    stripped_of: dict[int, Attributes] = {}
    cached, names_before = before.cache, before.names
    # Few calls and look-ups per endpoint: there may be thousands, and this runs at several levels.
    attributes: Attributes | None = None
    for endpoint in endpoints:
        if endpoint.attributes is not attributes:  # Usually they are those of the last endpoint.
            attributes = endpoint.attributes
            key = id(attributes)
            if key in names:
                name = names[key]
            else:
                name = names_before[key] if key in names_before else _first_name(endpoint)
                names[key] = name
            found = lists.setdefault(name, [])
            stripped = stripped_of.get(key)
        if name is None:
            continue
        own = id(endpoint)
        if own in cached:
            child = cached[own]
        else:
            if stripped is None:
                stripped = with_path(endpoint, path_of(endpoint)[1:]).attributes
                stripped_of[key] = stripped
            child = Endpoint(endpoint.addresses, stripped)
        cache[own] = child
        found.append(child)
    children = {name: tuple(found) for name, found in lists.items() if name is not None}
    return Split(children=children, cache=cache, names=names, source=endpoints)


def _first_name(endpoint: Endpoint) -> str | None:
    path = path_of(endpoint)
    return path[0] if path else None
