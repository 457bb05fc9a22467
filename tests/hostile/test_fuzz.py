"""Short run of tools/fuzz_wire.py, and checks that it detects bugs. `make fuzz` runs longer."""

import pytest

from proxyless.wire import ClientConnection, StreamEnd
from proxyless.wire.connection import Connection
from proxyless.wire.frames import FrameBuffer
from proxyless.wire.stream import Stream
from tools.fuzz_wire import Findings, held_bytes, main, reproduce, run_all, run_one, run_range

SEED = 20_260_101
INPUTS = 5_000
CHECKED = 300


@pytest.fixture(scope="module")
def findings() -> Findings:
    return run_range(SEED, 0, INPUTS)


def test_no_input_causes_a_failure(findings: Findings) -> None:
    assert findings.failures == []


def test_inputs_cause_every_kind_of_end(findings: Findings) -> None:
    """Connections survive, or end with every error code that frames can cause."""
    assert sum(findings.ends.values()) == INPUTS
    assert findings.ends["survived"] > INPUTS // 10
    for code in ("PROTOCOL", "FRAME_SIZE", "FLOW_CONTROL", "COMPRESSION"):
        assert findings.ends[f"{code}_ERROR"] > 20
    assert findings.ends["STREAM_CLOSED"] > 20
    assert findings.ends["ENHANCE_YOUR_CALM"] > 20


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_range(SEED, 0, CHECKED) == run_range(SEED, 0, CHECKED)
    assert run_range(SEED, 0, CHECKED).digest != run_range(SEED + 1, 0, CHECKED).digest


def test_result_is_the_same_with_several_processes() -> None:
    assert run_all(SEED, CHECKED, jobs=2) == run_range(SEED, 0, CHECKED)


# Detection of planted bugs


def test_unexpected_exception_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_opened(_self: Connection, _what: str, stream_id: int) -> None:
        raise KeyError(stream_id)

    monkeypatch.setattr(Connection, "_check_opened", check_opened)
    failures = run_range(SEED, 0, CHECKED).failures
    assert failures
    assert "# KeyError: " in failures[0]
    prefix = f"tools/fuzz_wire.py --seed {SEED} --index "
    assert failures[0].startswith(prefix)
    index = int(failures[0].removeprefix(prefix).split()[0])
    with pytest.raises(KeyError):
        run_one(SEED, index)


def test_stream_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(self: Connection, _status: object) -> None:
        self.is_closed = True
        self.streams.clear()

    monkeypatch.setattr(Connection, "lose", lose)
    assert any("ended 0 times" in failure for failure in run_range(SEED, 0, CHECKED).failures)


def test_a_stream_that_ends_twice_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_stream(self: Connection, stream: Stream, end: StreamEnd) -> None:
        stream.sending = stream.sending.after_close
        stream.receiving = stream.receiving.after_close
        del self.streams[stream.id]
        stream.listener.on_end(end)
        stream.listener.on_end(end)

    monkeypatch.setattr(Connection, "_end_stream", end_stream)
    assert any("on_end twice" in failure for failure in run_range(SEED, 0, CHECKED).failures)


def test_connection_that_stays_open_after_an_error_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Connection, "close", lambda *_: None)
    failures = run_range(SEED, 0, CHECKED).failures
    assert any("raised, but not closed" in failure for failure in failures)


def test_large_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def ping_back(self: Connection, _flags: int, _stream_id: int, _payload: bytes) -> None:
        self.outbound.emit(bytes(200_000))

    monkeypatch.setitem(Connection._CONTROL, 0x6, ping_back)  # noqa: SLF001 - to plant a bug
    assert any("sent " in failure for failure in run_range(SEED, 0, CHECKED).failures)


def test_large_memory_use_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class LeakingBuffer(FrameBuffer):
        __slots__ = ("leaked",)

        def __init__(self) -> None:
            super().__init__()
            self.leaked = [bytes(100_000) for _ in range(20)]

    monkeypatch.setattr("proxyless.wire.frames.FrameBuffer", LeakingBuffer)
    failures = run_range(SEED, 0, CHECKED).failures
    assert any("holds " in failure for failure in failures)


def test_held_bytes_include_nested_objects_once() -> None:
    inner = [bytes(1_000), bytes(2_000)]
    outer = {"inner": inner, "again": inner}
    assert 3_000 < held_bytes(outer, leave_out=()) < 4_000
    assert held_bytes(outer, leave_out=(inner,)) < 1_000


# The command line


def test_single_input_can_be_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(SEED, 7) == 0
    assert f"seed {SEED} index 7: " in capsys.readouterr().out


def test_exception_of_a_reproduced_input_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(_self: Connection, _data: bytes) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(Connection, "receive", receive)
    assert reproduce(SEED, 7) == 1
    assert "KeyError: 'broken'" in capsys.readouterr().err


def test_command_prints_seed_and_failures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_wire.py", "--inputs", "50", "--seed", "3"])
    assert main() == 0
    assert "fuzz: 50 inputs of seed 3, 0 failures" in capsys.readouterr().out


def test_inputs_cover_clients_and_servers() -> None:
    roles = [isinstance(run_one(SEED, n).core, ClientConnection) for n in range(50)]
    assert 10 < sum(roles) < 40
