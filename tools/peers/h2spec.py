"""h2spec's cases for HTTP/2 clients.

`h2specd` listens on one port per case, sends frames to the client that connects, and prints whether
the client's frames were the right answer. The client (`clients.h2spec`) connects to one port after
the other. It keeps each connection open, so that no case passes because an RPC is over.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final

from tools.peers.build import ROOT, install_go_command
from tools.peers.outcomes import BrokenSuiteError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tools.peers.outcomes import Run

MODULE: Final = "github.com/summerwind/h2spec"
VERSION: Final = "v2.2.1+incompatible"
CASES: Final = 57
# The time that h2specd waits for a frame; a case may wait for several.
_FRAME_TIMEOUT_S: Final = 2
_CASE_TIMEOUT_S: Final = 20.0
_START_TIMEOUT_S: Final = 10.0
_PORTS: Final = range(20_000, 30_000, 100)

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_GROUP: Final = re.compile(r"^.* -> (?P<section>[0-9.]+)\. [^>]*$")
_RESULT: Final = re.compile(r"^\s*(?P<mark>[✔×]) (?P<number>\d+): (?P<title>.*)$")
_EXPECTED: Final = re.compile(r"^\s*Expected: (?P<frame>.*)$")
_ERROR: Final = re.compile(r"^\s*Error: (?P<text>.*)$")

_RESET_BEFORE: Final = (
    "the response of h2specd is not gRPC's, so the client has reset the stream when the bad frame "
    "comes; RFC 9113 5.1 has an endpoint discard frames on a stream that it has reset"
)
_SIZE_IGNORED: Final = (
    "h2specd ignores the client's SETTINGS_MAX_FRAME_SIZE: the frame is larger than the default, "
    "and smaller than what the client has announced"
)


class H2specSuite:
    """Implements `Suite`."""

    name = "h2spec"
    title = "h2spec, for clients"
    about = (
        "HTTP/2 itself: h2specd sends frames of all kinds, most of them wrong, and looks at the "
        "client's answer. The client keeps its connection open, so a case does not pass because "
        "the RPC has ended."
    )
    versions: Final = {MODULE: VERSION}
    known: Final = {
        "4.2/2: Sends a large size DATA frame that exceeds the SETTINGS_MAX_FRAME_SIZE": (
            _SIZE_IGNORED
        ),
        "4.2/3: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE": (
            _SIZE_IGNORED
        ),
        "5.1/5: closed: Sends a DATA frame after sending RST_STREAM frame": _RESET_BEFORE,
        "5.1/6: closed: Sends a HEADERS frame after sending RST_STREAM frame": _RESET_BEFORE,
        "6.9/2: Sends a WINDOW_UPDATE frame with a flow control window increment of 0 on a "
        "stream": _RESET_BEFORE,
        "6.9.1/2: Sends multiple WINDOW_UPDATE frames increasing the flow control window to above "
        "2^31-1 on a stream": _RESET_BEFORE,
        "6.10/1: Sends multiple CONTINUATION frames preceded by a HEADERS frame": (
            "h2specd uses an entry of the dynamic table after it has acknowledged "
            "SETTINGS_HEADER_TABLE_SIZE 0: an error by RFC 7541 2.3.3"
        ),
    }
    runs = 2

    def __init__(self) -> None:
        self._binary: Path | None = None

    def prepare(self) -> None:
        self._binary = install_go_command(f"{MODULE}/cmd/h2specd", VERSION, self.name)

    def run(self, stack: str) -> Run:
        first_port = _find_ports(CASES + 1)
        report_port = first_port + CASES
        server = [str(self._binary), "-p", str(report_port), "-f", str(first_port)]
        client = [sys.executable, "-m", "tools.peers.clients.h2spec", stack]
        pipe = subprocess.PIPE
        with ExitStack() as exits:
            h2specd = exits.enter_context(
                subprocess.Popen(
                    [*server, "-o", str(_FRAME_TIMEOUT_S)],
                    stdout=pipe,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                    # Prints the contents of frames.
                    errors="replace",
                )
            )
            exits.callback(h2specd.kill)
            caller = exits.enter_context(subprocess.Popen(client, stdin=pipe, text=True, cwd=ROOT))
            exits.callback(caller.kill)
            assert h2specd.stdout is not None
            assert caller.stdin is not None
            results = _Results(h2specd.stdout)
            _wait_until_open(first_port + CASES - 1)
            for port in range(first_port, first_port + CASES):
                print(port, file=caller.stdin, flush=True)
                results.wait_for(port - first_port + 1)
            return results.run()

    def fold(self, case: str) -> str:
        return case


class _Results:
    """The output of h2specd, read by a thread."""

    def __init__(self, output: IO[str]) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(output,), daemon=True).start()

    def _read(self, output: Iterable[str]) -> None:
        for line in output:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until there are results of `count` cases."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.run()) >= count, _CASE_TIMEOUT_S):
                text = f"h2specd has judged {len(self.run())} cases, wanted {count}"
                raise BrokenSuiteError(text)

    def run(self) -> Run:
        return parse_output(self._lines)


def parse_output(lines: Iterable[str]) -> Run:
    """The outcome of each case on its first connection: a client may retry on another."""
    outcomes: Run = {}
    section, case = "", ""
    for line in lines:
        plain = _COLOUR.sub("", line).rstrip()
        if group := _GROUP.match(plain):
            section, case = group["section"], ""
        elif result := _RESULT.match(plain):
            name = f"{section}/{result['number']}: {result['title']}"
            is_new = name not in outcomes
            outcomes.setdefault(name, None if result["mark"] == "✔" else "failed")
            case = name if is_new and result["mark"] == "×" else ""
        elif case and (expected := _EXPECTED.match(plain)):
            outcomes[case] = f"wanted: {expected['frame']}"
        elif case and (error := _ERROR.match(plain)):
            outcomes[case] = error["text"]
    return outcomes


def _find_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    for first in _PORTS:
        try:
            with ExitStack() as exits:
                for port in range(first, first + count):
                    exits.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first
    raise BrokenSuiteError(f"there are no {count} free ports in a row")


def _wait_until_open(port: int) -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end_s:
        # Read from /proc, because h2specd takes any connection for the client.
        with open("/proc/net/tcp") as sockets:
            if f":{port:04X} 00000000:0000 0A" in sockets.read():
                return
        time.sleep(0.05)
    raise BrokenSuiteError(f"h2specd does not listen on port {port}")
