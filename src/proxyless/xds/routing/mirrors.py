"""Mirror policies of a route: the clusters that get a copy of an RPC.

Specs: no gRFC; `request_mirror_policies` as in Envoy, requirements MR-01 to MR-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import EMPTY_ATTRIBUTES
from proxyless.channel.mirrored_call import DURATION_MAX_S, ClusterMirror
from proxyless.lb import REQUEST_HASH
from proxyless.xds.filters.attributes import CLUSTER, MIRROR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import Attributes
    from proxyless.xds.resources.route import MirrorPolicy
    from proxyless.xds.routing.selector import SelectorTools

_MILLION: Final = 1_000_000


class RouteMirrors:
    """The mirrors of one route."""

    def __init__(
        self, policies: Sequence[MirrorPolicy], timeout_s: float | None, tools: SelectorTools
    ) -> None:
        self._policies: Final = tuple(policies)
        self._timeout_s: Final = min(timeout_s or DURATION_MAX_S, DURATION_MAX_S)
        self._random: Final = tools.random
        self._calls: Final = tools.mirrored_calls()

    def choose(self, attributes: Attributes) -> tuple[ClusterMirror, ...]:
        """The mirrors of one RPC, at random by their fractions.

        Of the RPC's attributes only the hash is used: others are for its own cluster.
        """
        chosen = [each for each in self._policies if self._accepts(each)]
        if not chosen:
            return ()
        request_hash = attributes.get(REQUEST_HASH)
        assert request_hash is not None, "the selector sets it for each RPC with a mirror"
        common = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, request_hash)
        return tuple(
            ClusterMirror(
                each.cluster,
                common.with_(CLUSTER, MIRROR_PREFIX + each.cluster),
                self._timeout_s,
                each.has_shadow_suffix,
                self._calls,
            )
            for each in chosen
        )

    def _accepts(self, policy: MirrorPolicy) -> bool:
        return policy.per_million >= _MILLION or self._random.randrange(_MILLION) < (
            policy.per_million
        )
