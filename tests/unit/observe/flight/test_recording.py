"""Unit tests of proxyless.observe.flight.recording."""

from __future__ import annotations

import json

import pytest

from proxyless.base import IpAddress, State, Status, StatusCode
from proxyless.observe.flight import Entry, RecordingError, read_lines
from proxyless.observe.flight import recording as module
from proxyless.observe.flight.recording import bound_fields, to_plain, write_lines

ENTRY = Entry(7, 12.5, 1, "channel.state", {"target": "a", "state": "READY"})


def lines(*entries: Entry) -> list[str]:
    return list(write_lines({"process": 1}, entries, left_out=3))


def test_recording_is_read_as_it_was_written() -> None:
    found = read_lines(lines(ENTRY))
    assert found.entries == (ENTRY,)
    assert (found.left_out, found.is_cut, found.header["process"]) == (3, False, 1)


def test_recording_without_its_end_is_cut() -> None:
    found = read_lines(lines(ENTRY)[:-1])
    assert (found.entries, found.is_cut) == ((ENTRY,), True)


def test_values_become_json() -> None:
    status = Status(StatusCode.UNAVAILABLE, "down\n")
    values = [State.READY, status, IpAddress("10.0.0.1", 80), (1, "a"), None, True, 0.5, object]
    plain = to_plain(values)
    assert plain[:7] == [
        "READY",
        {"code": "UNAVAILABLE", "details": "down"},
        "10.0.0.1:80",
        [1, "a"],
        None,
        True,
        0.5,
    ]
    json.dumps(plain)


def test_long_lists_and_texts_are_cut_when_they_are_recorded() -> None:
    found = bound_fields({"names": tuple(map(str, range(1000))), "text": "x" * 10_000, "n": 1})
    names, text = found["names"], found["text"]
    assert isinstance(names, tuple)
    assert isinstance(text, str)
    assert (len(names), names[-1]) == (51, "... (1000 items)")
    assert (len(text), found["n"]) == (500, 1)


def test_lines_are_printable() -> None:
    text = "\x1b[31m\u202e\ud800"
    (_, line, _) = lines(Entry(1, 0.0, 1, "dns.answer", {"host": text}))
    assert line.rstrip("\n").isprintable()
    line.encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ([], "line 1: not JSON"),
        (["{}"], 'wanted a header with "format"'),
        (["[]"], "wanted a JSON object"),
        (['{"format": "proxyless.flight", "version": 2}'], "version is 2, wanted 1"),
        ([lines()[0], "{"], "line 2: not JSON"),
        ([lines()[0], "[" * 100_000], "line 2: not JSON"),
        ([lines()[0], '{"number": 1}'], "line 2: wanted number"),
        ([lines()[0], lines(ENTRY)[1].replace("12.5", "NaN")], "line 2: wanted number"),
    ],
)
def test_file_that_is_no_recording_is_refused(text: list[str], problem: str) -> None:
    with pytest.raises(RecordingError, match=problem.replace("(", r"\(")):
        read_lines(text)


def test_too_many_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 2)
    with pytest.raises(RecordingError, match="more than 2 lines"):
        read_lines(lines(ENTRY, ENTRY))
