"""Unit tests of proxyless.protos.merging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyless.protos import DECODE_ERRORS, merging, message_class
from proxyless.protos.merging import TooLargeError, merge_in_steps

if TYPE_CHECKING:
    from proxyless.protos import Proto

ROUTES = message_class("envoy.config.route.v3.RouteConfiguration")
PART_BYTES = 64


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PART_BYTES_MAX", PART_BYTES)


def merge(serialized: bytes) -> tuple[Proto, list[int]]:
    """The merged message, and the work of each step."""
    message = ROUTES()
    return message, list(merge_in_steps(message, serialized))


def routes(count: int, *, hosts: int = 1, prefix: str = "/") -> Proto:
    message = ROUTES(name="routes", virtual_hosts=[{"name": f"h{n}"} for n in range(hosts)])
    for host in message.virtual_hosts:
        host.domains.append("*")
        for number in range(count):
            host.routes.add(match={"prefix": f"{prefix}{number}"}, route={"cluster": "c"})
            host.typed_per_filter_config[f"filter-{number}"].value = b"x"
    return message


@pytest.mark.parametrize(
    "message",
    [
        ROUTES(),
        ROUTES(name="x" * 1_000),
        routes(1),
        routes(100),
        routes(3, hosts=40),
        routes(3, prefix="/" * 500),
    ],
    ids=["empty", "long name", "small", "one host", "many hosts", "long routes"],
)
def test_merged_message_is_the_one_that_was_serialized(message: Proto) -> None:
    serialized = message.SerializeToString()
    merged, steps = merge(serialized)
    assert merged == message
    assert len(steps) >= len(serialized) // 3_000


def test_each_step_merges_few_bytes() -> None:
    _, steps = merge(routes(1_000).SerializeToString())
    assert len(steps) > 400
    assert max(steps) < 100


def test_singular_message_is_merged_when_it_is_large_and_comes_twice() -> None:
    kind = message_class("envoy.config.route.v3.Route")
    first = kind(match={"headers": [{"name": f"h{n}"} for n in range(50)]})
    second = kind(match={"headers": [{"name": "last"}]}, redirect={"host_redirect": "h" * 100})
    serialized = first.SerializeToString() + second.SerializeToString()
    merged = kind()
    list(merge_in_steps(merged, serialized))
    assert merged == kind.FromString(serialized)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_bytes_give_the_same_as_protobuf_or_an_error(data: st.DataObject) -> None:
    serialized = bytearray(routes(20).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(serialized) - 1))
        serialized[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 2))
    damaged = bytes(serialized[: len(serialized) - cut])
    merged = ROUTES()
    try:
        list(merge_in_steps(merged, damaged))
    except DECODE_ERRORS:
        return
    assert merged == ROUTES.FromString(damaged)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (b"\x12\xff\xff\x01", "longer than its message"),
        (b"\x12\x05", "longer than its message"),
        (b"\x80", "cut off"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_malformed_end_is_an_error(end: bytes, error: str) -> None:
    with pytest.raises(DecodeError, match=error):
        merge(routes(10).SerializeToString() + end)


def test_message_with_too_many_elements_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FIELDS_MAX", 100)
    with pytest.raises(TooLargeError, match="has more than 100 elements"):
        merge(routes(101).SerializeToString())


def test_map_with_too_large_a_value_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MAP_ENTRY_BYTES_MAX", 200)
    message = routes(1)
    override = message.virtual_hosts[0].typed_per_filter_config["filter-0"]
    override.value = b"x" * 150
    assert merge(message.SerializeToString())[0] == message
    override.value = b"x" * 250
    text = r"has 2\d\d bytes in one value of typed_per_filter_config, wanted at most 200"
    with pytest.raises(TooLargeError, match=text):
        merge(message.SerializeToString())


def test_too_large_a_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "TEXT_BYTES_MAX", 200)
    message = routes(1)
    message.virtual_hosts[0].name = "x" * 200
    assert merge(message.SerializeToString())[0] == message
    message.virtual_hosts[0].name = "x" * 201
    with pytest.raises(TooLargeError, match="has 201 bytes in one value of name, wanted at most"):
        merge(message.SerializeToString())
