"""Clusters and endpoints of a channel, found in its LB tree (pure).

The tree has one node per policy (`lb.description`). A cluster is a `cds_experimental` policy that
is not an aggregate; its priorities are the children of the `priority_experimental` policy below it,
its endpoints the subchannels. A target without xDS is one cluster without a name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base import State
from proxyless.base.frozen import frozen
from proxyless.lb.retained_child import NOT_LISTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.lb import LbNode

_CLUSTER_POLICY: Final = "cds_experimental"
_PRIORITY_POLICY: Final = "priority_experimental"
_CLUSTER_PREFIX: Final = "cluster:"
_LOCALITY: Final = re.compile(
    r"\{region=(?P<region>[^,]*), zone=(?P<zone>[^,]*), sub_zone=(?P<sub_zone>[^}]*)\}"
)
_LEAF: Final = re.compile(r"\{cluster=(?P<cluster>.*), child_number=\d+\}")
# The note of the outlier detection policy.
_EJECTED: Final = re.compile(r"(^|; )ejected \d")

READY: Final = State.READY.name


@frozen
class EndpointRow:
    """One subchannel."""

    address: str
    state: str
    priority: int
    locality: str
    in_use: bool
    is_ejected: bool
    detail: str


@frozen
class ClusterRow:
    """One cluster and its endpoints."""

    name: str
    state: str
    problem: str
    priorities: int
    # None if RPCs are sent to none.
    priority_in_use: int | None
    endpoints: tuple[EndpointRow, ...]

    @property
    def ready(self) -> int:
        return sum(each.state == READY for each in self.endpoints)

    @property
    def ejected(self) -> int:
        return sum(each.is_ejected for each in self.endpoints)


@frozen
class _Place:
    """Properties of a subchannel that the nodes above it have."""

    priority: int = 0
    locality: str = ""
    in_use: bool = True


def find_clusters(tree: LbNode | None) -> Iterator[ClusterRow]:
    """The clusters of a channel, in the order of the tree. Retained ones are left out."""
    if tree is None:
        return
    found = list(_cluster_nodes(tree, in_use=True))
    if not found and tree.policy:
        yield _row("", tree, in_use=True)
    for node, in_use in found:
        yield _row(node.name.removeprefix(_CLUSTER_PREFIX), node, in_use=in_use)


def _cluster_nodes(node: LbNode, *, in_use: bool) -> Iterator[tuple[LbNode, bool]]:
    if NOT_LISTED in node.detail:
        return
    in_use = in_use and node.in_use
    inner = [each for child in node.children for each in _cluster_nodes(child, in_use=in_use)]
    if inner or node.policy != _CLUSTER_POLICY:
        yield from inner
        return
    # A leaf of an aggregate cluster has the name that its priority policy gave it.
    if leaf := _LEAF.fullmatch(node.name):
        node = replace(node, name=leaf["cluster"])
    yield node, in_use


def _row(name: str, node: LbNode, *, in_use: bool) -> ClusterRow:
    priorities = next((each for each in _walk(node) if each.policy == _PRIORITY_POLICY), None)
    listed: tuple[LbNode, ...] = ()
    if priorities is not None:
        listed = tuple(each for each in priorities.children if NOT_LISTED not in each.detail)
    used: int | None = 0
    if listed:
        used = next((index for index, each in enumerate(listed) if each.in_use), None)
    endpoints = tuple(_endpoints(node, _Place(in_use=in_use)))
    return ClusterRow(name, node.state, node.problem, max(len(listed), 1), used, endpoints)


def _walk(node: LbNode) -> Iterator[LbNode]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _endpoints(node: LbNode, place: _Place) -> Iterator[EndpointRow]:
    if not node.policy:
        is_ejected = _EJECTED.search(node.detail) is not None
        yield EndpointRow(
            node.name, node.state, place.priority, place.locality, place.in_use, is_ejected,
            node.detail,
        )  # fmt: skip
        return
    number = 0
    for child in node.children:
        if NOT_LISTED in child.detail:
            continue
        below = replace(place, in_use=place.in_use and child.in_use)
        if node.policy == _PRIORITY_POLICY:
            below, number = replace(below, priority=number), number + 1
        if found := _LOCALITY.fullmatch(child.name):
            below = replace(below, locality="/".join(found.groups()).strip("/"))
        yield from _endpoints(child, below)
