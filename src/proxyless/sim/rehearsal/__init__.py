"""Run of a script against a mesh from files, in virtual time (`proxyless simulate`).

script, fields, parsing   the script, and its parser
inventory                 machines that the resources name
run, faults               execution of the script
causes, verdicts, report  evaluation of the records
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base.durations import parse_seconds
from proxyless.controlplane.snapshot import Snapshot
from proxyless.sim.rehearsal.fields import show_time
from proxyless.sim.rehearsal.inventory import Inventory, Mesh
from proxyless.sim.rehearsal.parsing import parse_script
from proxyless.sim.rehearsal.report import Report, make_report
from proxyless.sim.rehearsal.run import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.sim.rehearsal.script import Script

__all__ = ["Mesh", "Report", "parse_script", "parse_seconds", "rehearse", "show_time"]


def rehearse(
    script: Script,
    meshes: Sequence[Mesh],
    errors: ValidationErrors,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> Report | None:
    """Run the script: the first mesh is served at the start, another one with each push.

    Returns None, and adds to the errors, if script and meshes do not fit together. References to
    missing resources are allowed. The same script and meshes give the same report.
    """
    expected = 1 + len(script.pushes)
    assert len(meshes) == expected, f"there are {len(meshes)} meshes, wanted {expected}"
    inventory = Inventory.of(meshes, script.dns)
    inventory.check(script, errors)
    if not errors.ok:
        return None
    record = run_script(script, inventory, _make_snapshots(meshes), on_progress)
    return make_report(script, inventory, record)


def _make_snapshots(meshes: Sequence[Mesh]) -> list[Snapshot]:
    """Each is derived from the one before it, so that unchanged resources are not sent again."""
    snapshots = [Snapshot.of(meshes[0].resources, partial=True)]
    for mesh in meshes[1:]:
        snapshots.append(snapshots[-1].replaced(mesh.resources))
    return snapshots
