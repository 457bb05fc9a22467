"""Parsing of SPIFFE trust bundle maps."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.xds.security.trust_bundles import KEYS_MAX, TRUST_DOMAINS_MAX, parse_trust_bundles
from tests.certificates import CertificateAuthority, spiffe_key, trust_bundle_map

OURS, THEIRS = CertificateAuthority("ours"), CertificateAuthority("theirs")
DOMAIN = "a.example"
AT = f'trust_domains["{DOMAIN}"]'


def parsed(content: bytes) -> dict[str, frozenset[bytes]]:
    errors = ValidationErrors()
    bundles = parse_trust_bundles(content, errors)
    assert list(errors.items()) == []
    assert bundles.source == content
    return dict(bundles.roots)


def rejected(content: bytes | object) -> list[tuple[str, str]]:
    """The errors, each with its path."""
    errors = ValidationErrors()
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    parse_trust_bundles(text, errors)
    assert not errors.ok
    return list(errors.items())


def with_key(**changes: object) -> dict[str, Any]:
    """A map with one key that has these changes."""
    key = {name: value for name, value in (spiffe_key(OURS) | changes).items() if value is not None}
    return {"trust_domains": {DOMAIN: {"keys": [key]}}}


def test_each_trust_domain_has_its_own_roots() -> None:
    content = trust_bundle_map({DOMAIN: [OURS, THEIRS], "b.example": [THEIRS], "c.example": []})
    ours, theirs = OURS.certificate_der, THEIRS.certificate_der
    assert parsed(content) == {
        DOMAIN: {ours, theirs},
        "b.example": {theirs},
        "c.example": frozenset(),
    }


def test_empty_map_is_valid() -> None:
    assert parsed(b'{"trust_domains": {}}') == {}


def test_unknown_fields_are_ignored() -> None:
    key = spiffe_key(OURS) | {"kid": "1", "n": 5, "x": None}
    bundle = {"keys": [key], "spiffe_sequence": 7, "spiffe_refresh_hint": 300, "other": []}
    content = json.dumps({"trust_domains": {DOMAIN: bundle}, "version": 2}).encode()
    assert parsed(content) == {DOMAIN: {OURS.certificate_der}}


def test_keys_of_rsa_and_ec_are_accepted() -> None:
    for kty in ("RSA", "EC"):
        assert parsed(json.dumps(with_key(kty=kty)).encode())


def test_certificate_may_have_line_breaks() -> None:
    text = b64encode(OURS.certificate_der).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    content = json.dumps(with_key(x5c=[lines])).encode()
    assert parsed(content) == {DOMAIN: {OURS.certificate_der}}


@pytest.mark.parametrize(
    ("document", "path", "text"),
    [
        ([], "", "is a list, wanted an object"),
        ({}, "trust_domains", "is missing, wanted an object with a bundle per trust domain"),
        (
            {"trust_domains": None},
            "trust_domains",
            "is missing, wanted an object with a bundle per trust domain",
        ),
        ({"trust_domains": []}, "trust_domains", "is a list, wanted an object"),
        ({"trust_domains": {DOMAIN: "x"}}, AT, "is 'x', wanted an object"),
        ({"trust_domains": {DOMAIN: {}}}, f"{AT}.keys", "is missing, wanted a list"),
        ({"trust_domains": {DOMAIN: {"keys": {}}}}, f"{AT}.keys", "is an object, wanted a list"),
        (
            {"trust_domains": {DOMAIN: {"keys": ["x"]}}},
            f"{AT}.keys[0]",
            "is 'x', wanted an object",
        ),
        (
            {"trust_domains": {"": {"keys": []}}},
            'trust_domains[""]',
            "the name of the trust domain is empty, wanted a trust domain",
        ),
        (
            {"trust_domains": {"A": {"keys": []}}},
            'trust_domains["A"]',
            (
                "the name of the trust domain is 'A', "
                "wanted lower case letters, digits, dots, dashes and underscores"
            ),
        ),
        (
            {"trust_domains": {"spiffe://a": {"keys": []}}},
            'trust_domains["spiffe://a"]',
            (
                "the name of the trust domain is 'spiffe://a', "
                "wanted lower case letters, digits, dots, dashes and underscores"
            ),
        ),
        (with_key(use=None), f"{AT}.keys[0].use", "is '', wanted 'x509-svid'"),
        (with_key(use="jwt-svid"), f"{AT}.keys[0].use", "is 'jwt-svid', wanted 'x509-svid'"),
        (with_key(use=7), f"{AT}.keys[0].use", "is 7, wanted a string"),
        (with_key(kty=None), f"{AT}.keys[0].kty", "is '', wanted 'RSA' or 'EC'"),
        (with_key(kty="oct"), f"{AT}.keys[0].kty", "is 'oct', wanted 'RSA' or 'EC'"),
        (with_key(x5c=None), f"{AT}.keys[0].x5c", "has 0 certificates, wanted exactly one"),
        (with_key(x5c=[]), f"{AT}.keys[0].x5c", "has 0 certificates, wanted exactly one"),
        (with_key(x5c=["a", "b"]), f"{AT}.keys[0].x5c", "has 2 certificates, wanted exactly one"),
        (with_key(x5c="text"), f"{AT}.keys[0].x5c", "is 'text', wanted a list"),
        (with_key(x5c=[7]), f"{AT}.keys[0].x5c[0]", "is a number, wanted a string"),
        (with_key(x5c=["a*b="]), f"{AT}.keys[0].x5c[0]", "is not base64"),
        (with_key(x5c=["ä"]), f"{AT}.keys[0].x5c[0]", "is not base64"),
        (with_key(x5c=[""]), f"{AT}.keys[0].x5c[0]", "is no certificate"),
        (with_key(x5c=["aGVsbG8="]), f"{AT}.keys[0].x5c[0]", "is no certificate"),
    ],
)
def test_invalid_value_is_an_error_at_its_path(document: object, path: str, text: str) -> None:
    assert rejected(document)[0] == (path, text)


@pytest.mark.parametrize(
    "extra", [b"\0", b"more", THEIRS.certificate_der], ids=["a byte", "bytes", "another"]
)
def test_bytes_after_the_certificate_are_rejected(extra: bytes) -> None:
    text = b64encode(OURS.certificate_der + extra).decode()
    [(path, error)] = rejected(with_key(x5c=[text]))
    assert path == f"{AT}.keys[0].x5c[0]"
    assert error == "is a certificate and something after it"


def test_truncated_certificate_is_rejected() -> None:
    text = b64encode(OURS.certificate_der[:-1]).decode()
    assert rejected(with_key(x5c=[text])) == [(f"{AT}.keys[0].x5c[0]", "is no certificate")]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"trust_domains": {', "is not JSON: "),
        (b"\xff\xfe\xfd", "is not JSON: "),
        (b'{"trust_domains": ' + b"[" * 100_000, "objects or lists are nested too deeply"),
        (b'{"trust_domains": ' + b"9" * 10_000 + b"}", "is not JSON: "),
    ],
)
def test_invalid_json_is_one_error(content: bytes, text: str) -> None:
    [(path, error)] = rejected(content)
    assert path == ""
    assert error.startswith(text)


@pytest.mark.spec("A87-10")
def test_file_is_rejected_with_all_errors_when_one_key_is_invalid() -> None:
    """A87 does not let single keys be skipped."""
    bad = {"use": "sig", "kty": "EC", "x5c": []}
    document = {
        "trust_domains": {
            DOMAIN: {"keys": [spiffe_key(OURS), bad]},
            "b.example": {"keys": [spiffe_key(THEIRS)]},
        }
    }
    assert [path for path, _ in rejected(document)] == [f"{AT}.keys[1].use", f"{AT}.keys[1].x5c"]


def test_too_many_trust_domains_or_keys_are_rejected() -> None:
    many: dict[str, Any] = {f"d{index}": {"keys": []} for index in range(TRUST_DOMAINS_MAX + 1)}
    assert rejected({"trust_domains": many}) == [
        (
            "trust_domains",
            f"has {TRUST_DOMAINS_MAX + 1} entries, wanted at most {TRUST_DOMAINS_MAX}",
        )
    ]
    keys: list[Any] = [{}] * (KEYS_MAX + 1)
    assert rejected({"trust_domains": {DOMAIN: {"keys": keys}}}) == [
        (f"{AT}.keys", f"has {KEYS_MAX + 1} elements, wanted at most {KEYS_MAX}")
    ]


def test_error_contains_no_other_field_of_a_key() -> None:
    """The key may be private."""
    errors = str(rejected(with_key(use="x" * 10_000, d="SECRET", x5c=["SECRET"])))
    assert "SECRET" not in errors
    assert len(errors) < 500


WORDS = st.sampled_from(["trust_domains", "keys", "use", "kty", "x5c", DOMAIN, "x509-svid", "EC"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(), inner),
    max_leaves=20,
)


@given(TREES)
def test_random_json_gives_bundles_or_errors(tree: object) -> None:
    errors = ValidationErrors()
    bundles = parse_trust_bundles(json.dumps(tree).encode(), errors)
    # Random strings are no certificates.
    assert not errors.ok or not any(bundles.roots.values())


@given(st.binary(max_size=200))
def test_random_bytes_are_no_certificate(der: bytes) -> None:
    assert rejected(with_key(x5c=[b64encode(der).decode()]))
