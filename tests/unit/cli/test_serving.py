"""Unit tests of proxyless.cli.serving without sockets. Others are in tests/interop."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from proxyless.base import Event, ValidationError
from proxyless.cli.serving import _load, _log_event
from proxyless.controlplane import CLUSTER, FileSource, Nack
from proxyless.controlplane import files as files_module
from proxyless.controlplane.missing import MissingResources
from proxyless.runtime import VirtualClock

GOOD = f'"@type": {CLUSTER}\nname: a\ntype: STATIC\n'


async def test_load_returns_none_when_stopped_while_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    loop = asyncio.get_running_loop()
    is_reading, go_on, stopped = asyncio.Event(), threading.Event(), asyncio.Event()

    def read_for_ever(_path: Path, _errors: object) -> str:
        loop.call_soon_threadsafe(is_reading.set)
        go_on.wait()
        return ""

    monkeypatch.setattr(files_module, "read_bounded", read_for_ever)
    source = FileSource(
        tmp_path, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    loading = asyncio.ensure_future(_load(source, stopped))
    await is_reading.wait()
    stopped.set()
    assert await loading is None
    go_on.set()


async def test_load_returns_the_snapshot_or_raises(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    source = FileSource(
        tmp_path, VirtualClock(), on_snapshot=lambda _: None, on_problem=lambda _: None
    )
    snapshot = await _load(source, asyncio.Event())
    assert snapshot is source.snapshot is not None
    (tmp_path / "b.yaml").write_text(GOOD)
    with pytest.raises(ValidationError, match="is there already"):
        await _load(source, asyncio.Event())


def test_nack_is_logged_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    nack = Nack("edge-7", CLUSTER, "2", 3, "bad policy")
    with caplog.at_level(logging.INFO, "proxyless.serve"):
        _log_event(Event("controlplane.nack", {"nack": nack}))
        fields = {"node_id": "edge-7", "type_url": CLUSTER, "version": "2"}
        _log_event(Event("controlplane.ack", fields))
        _log_event(Event("controlplane.response", fields))
        missing = MissingResources("edge-7", CLUSTER, ("car",), ("cart",))
        _log_event(Event("controlplane.missing", {"missing": missing}))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "xds node 'edge-7': cluster version '2' refused: bad policy"),
        ("INFO", "xds node 'edge-7': cluster version '2' accepted"),
        (
            "WARNING",
            'xds node \'edge-7\' requested cluster "car", which is not here; there are "cart"',
        ),
    ]
