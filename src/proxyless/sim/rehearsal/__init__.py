"""Rehearsal of a script: clients of a mesh from files, in virtual time (`proxyless simulate`).

script, fields, parsing   what is to happen, and how a document says it
inventory                 which machines the resources name
stage, faults             the run
causes, verdicts, report  what came of it

    script = parse_script(document, errors)
    meshes = [Mesh.of(resources), *(Mesh.of(pushed) for pushed in ...)]
    report = rehearse(script, meshes, errors)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.rehearsal.fields import parse_seconds, show_time
from proxyless.sim.rehearsal.inventory import Inventory, Mesh
from proxyless.sim.rehearsal.parsing import RPCS_MAX, parse_script
from proxyless.sim.rehearsal.report import Phase, Report, Share, make_report
from proxyless.sim.rehearsal.script import Script
from proxyless.sim.rehearsal.stage import perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.base import ValidationErrors

__all__ = [
    "RPCS_MAX",
    "Inventory",
    "Mesh",
    "Phase",
    "Report",
    "Script",
    "Share",
    "parse_script",
    "parse_seconds",
    "rehearse",
    "show_time",
]


def rehearse(
    script: Script,
    meshes: Sequence[Mesh],
    errors: ValidationErrors,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> Report | None:
    """Run the script: the first mesh is served at the start, one more with each push.

    None if they do not fit together; what is wrong is added to the errors. Names that lead nowhere
    are no error here: clients see what comes of that. The same script and meshes give the same
    report.
    """
    wanted = 1 + len(script.pushes)
    assert len(meshes) == wanted, f"there are {len(meshes)} meshes, wanted {wanted}"
    inventory = Inventory.of(meshes, script.dns)
    inventory.check(script, errors)
    if not errors.ok:
        return None
    performance = perform(script, inventory, _make_snapshots(meshes), on_progress)
    return make_report(script, inventory, performance)


def _make_snapshots(meshes: Sequence[Mesh]) -> list[Snapshot]:
    """Each follows the one before it, so that what stays the same is not sent again."""
    snapshots = [Snapshot.of(meshes[0].resources, partial=True)]
    for mesh in meshes[1:]:
        snapshots.append(snapshots[-1].replaced(mesh.resources))
    return snapshots
