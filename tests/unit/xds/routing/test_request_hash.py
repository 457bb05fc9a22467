"""Request hashes: rotation, encoding and rewriting."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from proxyless.runtime import seeded_random
from proxyless.xds.resources import HashPolicy
from proxyless.xds.routing.request_hash import RequestHash

CHANNEL_ID = 0x8000_0000_0000_0001
HEADER = HashPolicy("header", header="x")


def compute(*policies: HashPolicy, value: str | None = None) -> int:
    metadata = () if value is None else (("x", value),)
    return RequestHash(policies, CHANNEL_ID).compute(metadata, seeded_random(1))


def test_hash_is_rotated_before_the_next_one_is_added() -> None:
    channel_id = HashPolicy("channel_id")
    assert compute(channel_id) == CHANNEL_ID
    assert compute(channel_id, channel_id) == 0x0000_0000_0000_0003 ^ CHANNEL_ID


@given(st.text(st.characters(max_codepoint=255)))
def test_header_is_hashed_as_its_bytes(value: str) -> None:
    assert compute(HEADER, value=value) == xxhash.xxh64_intdigest(value.encode("latin-1"))


@given(st.text())
def test_hash_has_64_bits_for_any_text(value: str) -> None:
    assert 0 <= compute(HEADER, value=value) < 2**64


def test_rewrite_replaces_every_match_by_its_groups() -> None:
    policy = HashPolicy("header", header="x", rewrite=("([a-z])([0-9])", r"\2\1"))
    assert compute(policy, value="a1-b2") == compute(HEADER, value="1a-2b")
