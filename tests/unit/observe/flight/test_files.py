"""Unit tests of proxyless.observe.flight.files."""

from __future__ import annotations

import logging
import stat
from typing import TYPE_CHECKING

from proxyless.observe.flight import FlightRecorder, read_lines, write_recording
from proxyless.observe.flight.files import write_in_thread, write_on_storm

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_file_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "flight.jsonl"
    assert write_recording(FlightRecorder(), str(path)) == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not read_lines(path.read_text().splitlines()).is_cut
    assert [each.name for each in tmp_path.iterdir()] == ["flight.jsonl"]


def test_directory_gets_a_new_file_each_time(tmp_path: Path) -> None:
    paths = {write_recording(FlightRecorder(), str(tmp_path)) for _ in range(3)}
    assert len(paths) == 3


def test_error_of_a_write_in_the_background_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "proxyless.observe"):
        write_in_thread(FlightRecorder(), str(tmp_path / "none" / "file"), "signal 12").join()
    assert "signal 12: flight recording was not written" in caplog.text


def test_second_storm_writes_nothing(tmp_path: Path) -> None:
    recorder = FlightRecorder()
    recorder.has_had_storm = True
    write_on_storm(recorder, str(tmp_path))
    assert recorder.on_storm is None
