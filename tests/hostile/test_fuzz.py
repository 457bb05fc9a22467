"""A short run of tools/fuzz_wire.py, and proof that it would notice. `make fuzz` runs longer."""

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


def test_no_input_breaks_a_promise(findings: Findings) -> None:
    assert findings.failures == []


def test_the_inputs_reach_far(findings: Findings) -> None:
    """Connections live and die in every way that frames can cause."""
    assert sum(findings.ends.values()) == INPUTS
    assert findings.ends["survived"] > INPUTS // 10
    for code in ("PROTOCOL", "FRAME_SIZE", "FLOW_CONTROL", "COMPRESSION"):
        assert findings.ends[f"{code}_ERROR"] > 20
    assert findings.ends["STREAM_CLOSED"] > 20
    assert findings.ends["ENHANCE_YOUR_CALM"] > 20


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_range(SEED, 0, CHECKED) == run_range(SEED, 0, CHECKED)
    assert run_range(SEED, 0, CHECKED).digest != run_range(SEED + 1, 0, CHECKED).digest


def test_processes_share_the_work_and_not_the_result() -> None:
    assert run_all(SEED, CHECKED, jobs=2) == run_range(SEED, 0, CHECKED)


# Would it notice?


def test_another_exception_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_stream_that_never_ends_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_connection_that_is_not_closed_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "close", lambda *_: None)
    failures = run_range(SEED, 0, CHECKED).failures
    assert any("raised, but not closed" in failure for failure in failures)


def test_an_endless_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def ping_back(self: Connection, _flags: int, _stream_id: int, _payload: bytes) -> None:
        self.outbound.emit(bytes(200_000))

    monkeypatch.setitem(Connection._CONTROL, 0x6, ping_back)  # noqa: SLF001 - to break it
    assert any("sent " in failure for failure in run_range(SEED, 0, CHECKED).failures)


def test_memory_that_grows_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hoarder(FrameBuffer):
        __slots__ = ("hoard",)

        def __init__(self) -> None:
            super().__init__()
            self.hoard = [bytes(100_000) for _ in range(20)]

    monkeypatch.setattr("proxyless.wire.connection.FrameBuffer", Hoarder)
    failures = run_range(SEED, 0, CHECKED).failures
    assert any("holds " in failure for failure in failures)


def test_what_is_held_is_measured_to_the_end() -> None:
    inner = [bytes(1_000), bytes(2_000)]
    outer = {"inner": inner, "again": inner}
    assert 3_000 < held_bytes(outer, leave_out=()) < 4_000
    assert held_bytes(outer, leave_out=(inner,)) < 1_000


# The command line


def test_one_input_can_be_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(SEED, 7) == 0
    assert f"seed {SEED} index 7: " in capsys.readouterr().out


def test_a_broken_input_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(_self: Connection, _data: bytes) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(Connection, "receive", receive)
    assert reproduce(SEED, 7) == 1
    assert "KeyError: 'broken'" in capsys.readouterr().err


def test_the_command_says_what_it_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_wire.py", "--inputs", "50", "--seed", "3"])
    assert main() == 0
    assert "fuzz: 50 inputs of seed 3, 0 failures" in capsys.readouterr().out


def test_clients_are_among_the_inputs() -> None:
    roles = [isinstance(run_one(SEED, n).core, ClientConnection) for n in range(50)]
    assert 10 < sum(roles) < 40
