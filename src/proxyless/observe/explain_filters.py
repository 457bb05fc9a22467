"""Explanation of the HTTP filters of a route.

Specs: A39 (the chain and its overrides), A33 (faults), A55 (sessions).

Filters of this package describe their effect (`xds.view.FilterView`); of other filters the config
is shown. For random faults the text has the share of RPCs with this metadata. Filters of
applications are not run, because that may have side effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import quote
from proxyless.base.explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.base import Metadata
    from proxyless.xds.view import FilterView


def explain_filter(view: FilterView, metadata: Metadata) -> Explanation:
    source = "" if view.override is None else f", overridden by the {view.override}"
    kind = view.type_name.rpartition(".")[2]
    name = f"filter {quote(view.name)}"
    facts: dict[str, object] = {
        "name": view.name,
        "type": view.type_name,
        "is_disabled": view.config is None,
        "override": view.override,
    }
    if abort := view.describe_abort(metadata):
        facts |= {"abort": f"{name} {abort}", "is_certain": view.aborts_every_rpc(metadata)}
    return Explanation("filter", f"{name} ({kind}): {view.describe(metadata)}{source}", facts)


def find_aborts(filters: Iterable[Explanation]) -> tuple[str, str]:
    """The first filter that aborts every RPC, and the first before it that aborts some."""
    possible = ""
    for each in filters:
        abort = str(each.facts.get("abort", ""))
        if abort and each.facts["is_certain"]:
            return abort, possible
        possible = possible or abort
    return "", possible
