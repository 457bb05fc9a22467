"""Which endpoints are for which child?

Specs: A56 "Hierarchical Addresses".

An endpoint carries a path: the name of the child it is for, then that child's child, and so on. A
parent splits the endpoints by the first step; each child sees the rest of the path.
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
    """The endpoint with this path. With an empty one it is as if it never had any."""
    attributes = endpoint.attributes
    return Endpoint(
        endpoint.addresses, attributes.with_(_PATH, path) if path else without_path(attributes)
    )


def without_path(attributes: Attributes) -> Attributes:
    """The attributes of an endpoint that never had a path."""
    return attributes.without(_PATH)


@frozen(eq=False)
class Split:
    """Who gets which endpoints. Kept by a parent until its next update, to make that cheap."""

    error: Status | None = None
    children: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    # By id: an endpoint, which keeps its id taken; whom it is for; what that child sees.
    seen: Mapping[int, tuple[Endpoint, str, Endpoint]] = field(default_factory=dict)

    def of(self, child: str) -> Endpoints:
        """What the child's update says: its endpoints, maybe none, or the resolver's error."""
        return self.error if self.error is not None else self.children.get(child, ())


NO_SPLIT: Final = Split()


def split_by_child(endpoints: Endpoints, before: Split = NO_SPLIT) -> Split:
    """Split by the first step of the paths; endpoints without a path are for nobody.

    The result does not depend on the split before, but takes over what did not change: same
    endpoint in, same endpoint out, so that a child finds out at little cost what is new.
    """
    if isinstance(endpoints, Status):
        return Split(error=endpoints)
    seen: dict[int, tuple[Endpoint, str, Endpoint]] = {}
    lists: dict[str, list[Endpoint]] = {}
    steps: dict[int, _Step] = {}
    for endpoint in endpoints:
        entry = before.seen.get(id(endpoint)) or _take_step(endpoint, steps)
        if entry is not None:
            seen[id(endpoint)] = entry
            lists.setdefault(entry[1], []).append(entry[2])
    return Split(children={name: tuple(found) for name, found in lists.items()}, seen=seen)


# Whom endpoints are for, and the attributes that the child sees.
_Step = tuple[str, Attributes]


def _take_step(
    endpoint: Endpoint, steps: dict[int, _Step]
) -> tuple[Endpoint, str, Endpoint] | None:
    """Endpoints that share their attributes still do so afterwards; `steps` knows them by id."""
    attributes = endpoint.attributes
    step = steps.get(id(attributes))
    if step is None:
        path = path_of(endpoint)
        if not path:
            return None
        step = steps[id(attributes)] = (path[0], with_path(endpoint, path[1:]).attributes)
    child, rest = step
    return (endpoint, child, Endpoint(endpoint.addresses, rest))
