"""A view from the middle of the story, for tests."""

from __future__ import annotations

from proxyless.demo.mesh import PLACES
from proxyless.demo.verdict import Row
from proxyless.demo.view import (
    COLUMNS,
    MISSED,
    RUNNING,
    SEEN,
    WAITING,
    BackendView,
    GenerationView,
    HeldType,
    SessionView,
    StepView,
    TreeRow,
    View,
)

RATES = {"b1": 151.0, "b2": 149.0}


def backend_views() -> tuple[BackendView, ...]:
    """Zone a is killed, zone b answers."""
    return tuple(
        BackendView(
            name=place.name,
            zone=place.zone,
            cluster=place.cluster,
            address=f"127.0.0.1:{5000 + index}",
            is_running=place.zone != "a",
            priority={"a": 0, "b": 1}.get(place.zone),
            rate=RATES.get(place.name, 0.0),
            history=(0.0,) * (COLUMNS - 1) + (RATES.get(place.name, 0.0),),
        )
        for index, place in enumerate(PLACES)
    )


STEPS = (
    StepView("everything is well", "zone a answers", SEEN, "at once"),
    StepView("zone a is killed", "zone b answers", RUNNING),
    StepView("zones are back", "zone a answers again", WAITING),
)
MISSED_STEP = StepView("zone a is killed", "zone b answers", MISSED, "answered by no backend")
ROWS = (Row("tear", "none", is_good=True), Row("RPCs failed", "3 UNKNOWN", is_good=False))
TREE = (
    TreeRow(0, "xds:///greeter", ("cluster_manager",), "READY", "", is_active=True),
    TreeRow(1, "priority 0", ("wrr_locality",), "TRANSIENT_FAILURE", "connection refused"),
    TreeRow(
        1, "b1 127.0.0.1:5002", ("pick_first",), "READY", "the session is here", is_active=True
    ),
    TreeRow(1, "greeter-dns", ("cds",), "", "not needed so far"),
)
VIEW = View(
    elapsed_s=4.25,
    rate=300.0,
    sent=1234,
    lost=3,
    failed=0,
    tree=TREE,
    backends=backend_views(),
    session=SessionView("b1", "127.0.0.1:5002", "greeter", 42, 1, 3.1),
    generation=GenerationView(
        "3", is_served=True, held=(HeldType("CDS", "3", ("greeter-v2",)),), cluster="greeter-eds"
    ),
    steps=STEPS,
)
