"""The demo as a process: verdict, output and signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "proxyless", "demo")
# The demo takes up to twenty seconds on a busy machine.

BACKENDS = 6
PATIENCE_S = 60.0


@contextmanager
def started(*arguments: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401
    """A demo; it is over afterwards."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    with subprocess.Popen([*COMMAND, *arguments], **settings) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def children_of(process_id: int) -> list[int]:
    text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(each) for each in text.split()]


def is_running(process_id: int) -> bool:
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    return False


def wait_until(happens: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end_s, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.02)


@pytest.mark.rerun("plays the demo, with its processes and its times")
def test_demo_ends_with_a_good_verdict() -> None:
    with started("--speed", "10", "-o", "json") as demo:
        out, log = demo.communicate()
    document = json.loads(out)
    assert demo.returncode == 0, document
    assert document["good"] is True
    rows = {row["name"]: row["value"] for row in document["rows"]}
    assert list(rows) == [
        "story",
        "RPCs sent",
        "RPCs failed",
        "latency",
        "failover a to b",
        "failover b to DNS",
        "session",
        "tear",
        "control plane",
    ]
    assert rows["story"] == "9 of 9 steps seen"
    assert int(rows["RPCs sent"].replace(",", "")) > 1000
    assert rows["tear"].startswith("none: ")
    assert re.fullmatch(r"stayed on [ab][12], one connection, .*", rows["session"])
    # The log is not on stdout.
    assert "zone a is killed" in log
    assert "Traceback" not in log


@pytest.mark.rerun("plays the demo, with its processes and its times")
def test_verdict_is_bad_and_exit_code_is_1_when_a_backend_fails() -> None:
    with started("--speed", "10", "--bad-backend", "a1") as demo:
        out, errors = demo.communicate()
    assert demo.returncode == 1
    assert errors == ""
    verdict = [
        line.split(maxsplit=1) for line in out.splitlines() if line.startswith(("good", "bad"))
    ]
    marks = {rest[:11].strip(): mark for mark, rest in verdict}
    assert marks["story"] == marks["RPCs failed"] == "bad"
    assert re.search(r"\d+ INTERNAL: backend 'a1' is a bad one", out)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
class TestEnds:
    """However the demo ends, nothing of it is left."""

    @pytest.mark.rerun("interrupts a process while it starts others")
    def test_ctrl_c_on_a_terminal_ends_everything_quietly(self) -> None:
        master, terminal = pty.openpty()
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "130", "LINES": "32"}
        with started(stdout=terminal, env=environ) as demo:
            os.close(terminal)
            screen = read_until(master, b"LB tree")
            children = children_of(demo.pid)
            assert len(children) == BACKENDS
            demo.send_signal(signal.SIGINT)
            assert demo.stderr is not None
            screen += read_until(master, None)
            errors = demo.stderr.read()
        os.close(master)
        assert demo.returncode == 1
        assert errors == "proxyless demo: stopped before the verdict\n"
        assert not [child for child in children if is_running(child)]
        assert b"\x1b[?1049l" in screen, "the screen from before is back"

    @pytest.mark.rerun("kills a process while it starts others")
    def test_backends_do_not_outlive_a_demo_that_is_killed(self) -> None:
        with started("--plain") as demo:
            assert demo.stdout is not None
            assert "everything is well" in demo.stdout.readline()
            children = children_of(demo.pid)
            assert len(children) == BACKENDS
            demo.kill()
            demo.wait()
            wait_until(lambda: not any(map(is_running, children)), "the backends to end")


def read_until(master: int, wanted: bytes | None) -> bytes:
    """The output of the terminal up to `wanted`, or to its end."""
    read = b""
    while wanted is None or wanted not in read:
        try:
            part = os.read(master, 65_536)
        except OSError:
            part = b""
        if not part:
            assert wanted is None, read
            break
        read += part
    return read


def test_generated_code_matches_the_proto_file(tmp_path: Path) -> None:
    source = ROOT / "src"
    options = [f"-I{source}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    assert protoc.main(["protoc", *options, "proxyless/demo/greeter.proto"]) == 0
    for name in ("greeter_pb2.py", "greeter_pb2_grpc.py"):
        made = (tmp_path / "proxyless" / "demo" / name).read_text()
        kept = (source / "proxyless" / "demo" / name).read_text()
        assert without_versions(kept) == without_versions(made)


def without_versions(code: str) -> str:
    """The tools that made it write their versions, and newer ones a little less."""
    code = code.replace("(object)", "").replace("+ f' but", "+ ' but")
    code = re.sub(r"\d+\.\d+\.\d+", "VERSION", code)
    return re.sub(r"(Domain.PUBLIC,\s+)\d+,\s+\d+,\s+\d+,", r"\1VERSION,", code)
