"""TLS of a cluster: supported fields, and fields that must not be ignored."""

from collections.abc import Mapping
from typing import Any

import pytest

from proxyless.protos import Proto
from proxyless.xds.parsing.tls import SNI_GUARD, SYSTEM_ROOTS_GUARD, UPSTREAM_TLS_CONTEXT
from proxyless.xds.resources import CertificateInstance, SanMatcher, StringMatcher, UpstreamTls
from tests.worlds.xds_messages import (
    ROUND_ROBIN,
    any_of,
    any_with,
    cluster,
    parsed_cluster,
    proto,
    refused_cluster,
    typed_struct,
)

ROOTS: dict[str, Any] = {"ca_certificate_provider_instance": {"instance_name": "roots"}}
COMMON = f'field:transport_socket.typed_config["{UPSTREAM_TLS_CONTEXT}"].common_tls_context'
COMBINED = "combined_validation_context.default_validation_context"
UNSUPPORTED = "error:is set, which is not supported"


def with_socket(typed_config: Proto | None) -> Proto:
    socket = {"name": "tls"} if typed_config is None else {"typed_config": typed_config}
    return cluster(transport_socket=socket)


def with_tls(common: dict[str, Any] | None = None, **fields: Any) -> Proto:  # noqa: ANN401
    """A cluster with this common_tls_context, and other fields of the UpstreamTlsContext."""
    context = {"validation_context": ROOTS} | (common or {})
    message = proto(UPSTREAM_TLS_CONTEXT, common_tls_context=context, **fields)
    return with_socket(any_of(message))


def parsed_tls(message: Proto, environ: Mapping[str, str] | None = None) -> UpstreamTls:
    tls = parsed_cluster(message, environ).tls
    assert tls is not None
    return tls


def test_cluster_without_transport_socket_has_no_tls() -> None:
    assert parsed_cluster(cluster()).tls is None


def test_tls_needs_nothing_but_roots() -> None:
    assert parsed_tls(with_tls()) == UpstreamTls(ca=CertificateInstance("roots"))


def test_all_supported_fields_are_parsed() -> None:
    matchers = [
        {"exact": "a.example"},
        {"prefix": "B.", "ignore_case": True},
        {"suffix": ".c"},
        {"contains": "d"},
        {"safe_regex": {"regex": "e+"}},
    ]
    roots = {
        "ca_certificate_provider_instance": {"instance_name": "roots", "certificate_name": "r"}
    }
    validation = roots | {"match_subject_alt_names": matchers}
    identity = {"instance_name": "identity", "certificate_name": "i"}
    common = {
        "validation_context": validation,
        "tls_certificate_provider_instance": identity,
        "alpn_protocols": ["h2"],
    }
    message = with_tls(common, sni="s.example", auto_host_sni=True, auto_sni_san_validation=True)
    assert parsed_tls(message) == UpstreamTls(
        ca=CertificateInstance("roots", "r"),
        identity=CertificateInstance("identity", "i"),
        san_matchers=(
            StringMatcher("exact", "a.example"),
            StringMatcher("prefix", "B.", ignore_case=True),
            StringMatcher("suffix", ".c"),
            StringMatcher("contains", "d"),
            StringMatcher("regex", "e+"),
        ),
        sni="s.example",
        auto_host_sni=True,
        auto_sni_san_validation=True,
    )


@pytest.mark.spec("A29-11")
def test_combined_validation_context_is_parsed() -> None:
    combined = {"default_validation_context": ROOTS}
    tls = parsed_tls(with_tls({"combined_validation_context": combined}))
    assert tls.ca == CertificateInstance("roots")


def test_older_fields_are_used_when_the_newer_ones_are_unset() -> None:
    older = {"instance_name": "roots", "certificate_name": "older"}
    combined: dict[str, Any] = {"validation_context_certificate_provider_instance": older}
    common = {
        "combined_validation_context": combined,
        "tls_certificate_certificate_provider_instance": {"instance_name": "identity"},
    }
    tls = parsed_tls(with_tls(common))
    assert (tls.ca, tls.identity) == (
        CertificateInstance("roots", "older"),
        CertificateInstance("identity"),
    )
    combined["default_validation_context"] = ROOTS
    assert parsed_tls(with_tls(common)).ca == CertificateInstance("roots")


@pytest.mark.spec("A82-02")
def test_system_roots_are_used_when_there_is_no_provider() -> None:
    system: dict[str, Any] = {"system_root_certs": {}}
    assert parsed_tls(with_tls({"validation_context": system})).ca is None
    # A provider takes precedence.
    both = parsed_tls(with_tls({"validation_context": system | ROOTS}))
    assert both.ca == CertificateInstance("roots")


@pytest.mark.spec("A82-03")
def test_system_roots_are_ignored_when_the_guard_is_false() -> None:
    environ = {SYSTEM_ROOTS_GUARD: "false"}
    system: dict[str, Any] = {"system_root_certs": {}}
    expected = f"{COMMON} error:has no CA certificates, wanted ca_certificate_provider_instance"
    assert refused_cluster(with_tls({"validation_context": system}), environ) == expected
    both = parsed_tls(with_tls({"validation_context": system | ROOTS}), environ)
    assert both.ca == CertificateInstance("roots")


@pytest.mark.spec("A29-07")
@pytest.mark.parametrize(
    "common", [{"validation_context": {}}, {"combined_validation_context": {}}]
)
def test_tls_without_roots_is_rejected(common: dict[str, Any]) -> None:
    expected = f"{COMMON} error:has no CA certificates, wanted ca_certificate_provider_instance"
    assert refused_cluster(with_tls(common)) == expected
    bare = with_socket(any_of(proto(UPSTREAM_TLS_CONTEXT)))
    assert refused_cluster(bare) == expected


@pytest.mark.spec("A29-08")
@pytest.mark.parametrize(
    ("common", "path"),
    [
        (
            {"validation_context": {"ca_certificate_provider_instance": {"instance_name": "x"}}},
            "validation_context.ca_certificate_provider_instance",
        ),
        (
            {
                "combined_validation_context": {
                    "default_validation_context": {
                        "ca_certificate_provider_instance": {"instance_name": "x"}
                    }
                }
            },
            f"{COMBINED}.ca_certificate_provider_instance",
        ),
        (
            {"tls_certificate_provider_instance": {"instance_name": "x"}},
            "tls_certificate_provider_instance",
        ),
        (
            {"tls_certificate_certificate_provider_instance": {"instance_name": "x"}},
            "tls_certificate_certificate_provider_instance",
        ),
    ],
)
def test_provider_is_rejected_when_it_is_not_in_the_bootstrap(
    common: dict[str, Any], path: str
) -> None:
    assert refused_cluster(with_tls(common)) == (
        f"{COMMON}.{path}.instance_name "
        "error:is 'x', which is no certificate provider of the bootstrap"
    )


@pytest.mark.spec("A29-10")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verify_certificate_spki", ["x"]),
        ("verify_certificate_hash", ["x"]),
        ("require_signed_certificate_timestamp", {"value": True}),
        ("crl", {}),
        ("custom_validator_config", {}),
    ],
)
def test_unsupported_validation_fields_are_rejected(field: str, value: object) -> None:
    assert refused_cluster(with_tls({"validation_context": ROOTS | {field: value}})) == (
        f"{COMMON}.validation_context.{field} {UNSUPPORTED}"
    )


def test_signed_timestamp_is_accepted_when_it_is_not_required() -> None:
    validation = ROOTS | {"require_signed_certificate_timestamp": {"value": False}}
    assert parsed_tls(with_tls({"validation_context": validation})).ca is not None


@pytest.mark.spec("A29-09")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tls_params", {}),
        ("custom_handshaker", {}),
        ("tls_certificates", [{}]),
        ("tls_certificate_sds_secret_configs", [{}]),
    ],
)
def test_unsupported_context_fields_are_rejected(field: str, value: object) -> None:
    assert refused_cluster(with_tls({field: value})) == f"{COMMON}.{field} {UNSUPPORTED}"


def test_other_identities_are_ignored_when_there_is_a_provider() -> None:
    common = {
        "tls_certificate_provider_instance": {"instance_name": "identity"},
        "tls_certificates": [{}],
    }
    assert parsed_tls(with_tls(common)).identity == CertificateInstance("identity")


def test_typed_san_matchers_are_used_when_there_are_no_untyped_ones() -> None:
    typed = [
        {"san_type": "EMAIL", "matcher": {"exact": "a"}},
        {"san_type": "DNS", "matcher": {"prefix": "b"}},
        {"san_type": "URI", "matcher": {"suffix": "c"}},
        {"san_type": "IP_ADDRESS", "matcher": {"contains": "d"}},
    ]
    validation = ROOTS | {"match_typed_subject_alt_names": typed}
    assert parsed_tls(with_tls({"validation_context": validation})).san_matchers == (
        SanMatcher("email", StringMatcher("exact", "a")),
        SanMatcher("DNS", StringMatcher("prefix", "b")),
        SanMatcher("URI", StringMatcher("suffix", "c")),
        SanMatcher("IP", StringMatcher("contains", "d")),
    )
    # The field of A29 takes precedence.
    both = validation | {"match_subject_alt_names": [{"exact": "e"}]}
    assert parsed_tls(with_tls({"validation_context": both})).san_matchers == (
        StringMatcher("exact", "e"),
    )


@pytest.mark.parametrize("san_type", ["SAN_TYPE_UNSPECIFIED", "OTHER_NAME"])
def test_unsupported_san_type_is_rejected(san_type: str) -> None:
    typed = [{"san_type": san_type, "matcher": {"exact": "a"}}]
    text = refused_cluster(
        with_tls({"validation_context": ROOTS | {"match_typed_subject_alt_names": typed}})
    )
    path = f"{COMMON}.validation_context.match_typed_subject_alt_names[0].san_type"
    assert text.startswith(f"{path} error:is ")
    assert text.endswith(", wanted one of 1 to 4")


@pytest.mark.spec("A29-09")
def test_roots_by_secret_discovery_are_rejected() -> None:
    text = refused_cluster(with_tls({"validation_context_sds_secret_config": {}}))
    assert text.split("; ")[0] == f"{COMMON}.validation_context_sds_secret_config {UNSUPPORTED}"


@pytest.mark.parametrize("matcher", [{}, {"safe_regex": {"regex": "("}}])
def test_invalid_san_matcher_is_an_error_at_its_index(matcher: dict[str, Any]) -> None:
    validation = ROOTS | {"match_subject_alt_names": [{"exact": "a"}, matcher]}
    assert refused_cluster(with_tls({"validation_context": validation})).startswith(
        f"{COMMON}.validation_context.match_subject_alt_names[1]"
    )


@pytest.mark.parametrize("kind", ["prefix", "suffix", "contains"])
def test_san_matcher_is_rejected_when_it_matches_every_name(kind: str) -> None:
    error = f"{kind} error:is empty, which would accept every name"
    validation = ROOTS | {"match_subject_alt_names": [{kind: ""}]}
    assert refused_cluster(with_tls({"validation_context": validation})) == (
        f"{COMMON}.validation_context.match_subject_alt_names[0].{error}"
    )
    typed = {"san_type": "DNS", "matcher": {kind: ""}}
    validation = ROOTS | {"match_typed_subject_alt_names": [typed]}
    assert refused_cluster(with_tls({"validation_context": validation})) == (
        f"{COMMON}.validation_context.match_typed_subject_alt_names[0].matcher.{error}"
    )


@pytest.mark.spec("A29-22")
def test_transport_socket_matches_are_rejected() -> None:
    """Ignoring them would mean connections without TLS."""
    assert refused_cluster(cluster(transport_socket_matches=[{"name": "a"}])) == (
        f"field:transport_socket_matches {UNSUPPORTED}"
    )


@pytest.mark.spec("A101-08")
def test_sni_above_255_characters_is_rejected() -> None:
    assert parsed_tls(with_tls(sni="s" * 255)).sni == "s" * 255
    path = COMMON.removesuffix(".common_tls_context")
    assert refused_cluster(with_tls(sni="s" * 256)) == (
        f"{path}.sni error:has 256 characters, wanted at most 255"
    )


@pytest.mark.parametrize("sni", ["a\0.example", "a\n", "\x1b[2J", "\u202ea"], ids=ascii)
def test_sni_with_control_characters_is_rejected(sni: str) -> None:
    path = COMMON.removesuffix(".common_tls_context")
    assert refused_cluster(with_tls(sni=sni)) == (
        f"{path}.sni error:is {sni!r}, wanted printable characters"
    )


@pytest.mark.spec("A101-09")
def test_sni_is_ignored_when_the_guard_is_false() -> None:
    message = with_tls(sni="s" * 256, auto_host_sni=True, auto_sni_san_validation=True)
    tls = parsed_tls(message, {SNI_GUARD: "false"})
    assert tls == UpstreamTls(ca=CertificateInstance("roots"))


@pytest.mark.spec("A29-21")
@pytest.mark.parametrize(
    ("typed_config", "expected"),
    [
        (None, ".type_url error:is ''"),
        (any_of(ROUND_ROBIN), " error:is envoy."),
        (any_with(UPSTREAM_TLS_CONTEXT, b"\xff"), f'["{UPSTREAM_TLS_CONTEXT}"] error:cannot be'),
        (typed_struct(UPSTREAM_TLS_CONTEXT), " error:is a TypedStruct of envoy."),
    ],
)
def test_other_transport_sockets_are_rejected(typed_config: Proto | None, expected: str) -> None:
    assert refused_cluster(with_socket(typed_config)).startswith(
        f"field:transport_socket.typed_config{expected}"
    )
