"""Unit tests of proxyless.resolver.registry."""

import pytest

from proxyless.resolver import (
    STATIC_FACTORIES,
    DeferredResolverFactory,
    DnsFactory,
    ResolverRegistry,
    StaticFactory,
    Target,
)
from proxyless.resolver.target import encode_host_port

DNS = DnsFactory()
UNIX = next(factory for factory in STATIC_FACTORIES if factory.scheme == "unix")


def test_target_is_matched_by_its_scheme() -> None:
    registry = ResolverRegistry([DNS, *STATIC_FACTORIES])
    assert registry.match_target("unix:/s") == (UNIX, Target("unix", "", "/s"))
    assert registry.match_target("backend:80") == (DNS, Target("dns", "", "/backend:80"))
    assert registry.schemes == ("dns", "ipv4", "ipv6", "unix", "unix-abstract")
    assert registry.find("unix") is UNIX
    assert registry.find("xds") is None


def test_an_unknown_scheme_names_those_of_this_registry() -> None:
    with pytest.raises(ValueError, match=r"unknown scheme 'unix': wanted one of dns$"):
        ResolverRegistry([DNS]).match_target("unix:///s")


@pytest.mark.parametrize(
    ("registry", "known"), [(ResolverRegistry([UNIX]), "unix"), (ResolverRegistry(), "none")]
)
def test_default_scheme_that_is_not_registered_is_an_error(
    registry: ResolverRegistry, known: str
) -> None:
    text = f"target 'a:80' has no scheme and the default 'dns' is not known: wanted one of {known}"
    with pytest.raises(ValueError, match=text):
        registry.match_target("a:80")


def test_other_default_scheme_is_used_for_targets_without_a_scheme() -> None:
    registry = ResolverRegistry([DNS, UNIX], default_scheme="unix")
    assert registry.match_target("s") == (UNIX, Target("unix", "", "/s"))
    assert registry.extended(STATIC_FACTORIES[:1]).match_target("s")[0] is UNIX


def test_scheme_registered_twice_is_an_error_that_names_both() -> None:
    with pytest.raises(ValueError, match=r"scheme 'dns' is registered twice: by .* and by"):
        ResolverRegistry([DNS, DnsFactory()])


@pytest.mark.parametrize("scheme", ["DNS", "", "a:b", "4to6"])
def test_a_scheme_that_no_target_can_have_is_rejected(scheme: str) -> None:
    factory = StaticFactory(scheme, UNIX.parse_one, encode_host_port)
    with pytest.raises(ValueError, match=f"scheme '{scheme}' is not valid: wanted a lower-case"):
        ResolverRegistry([factory])


def test_extending_leaves_the_registry_as_it_was() -> None:
    registry = ResolverRegistry([DNS])
    extended = registry.extended([UNIX])
    assert registry.schemes == ("dns",)
    assert extended.schemes == ("dns", "unix")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "UNKNOWN"),
        ("dns:", "UNKNOWN"),
        ("DNS:///?query", "UNKNOWN"),
        ("dns://name", "UNKNOWN"),
        ("ipv4:1.2.3", "UNKNOWN"),
        ("unix://authority/path", "UNKNOWN"),
        (":80", "UNAVAILABLE"),
        ("nosuch://name", "UNAVAILABLE"),
        ("dns:///a:b", "UNAVAILABLE"),
        ("dns:a b", "UNAVAILABLE"),
        ("dns://server/name", "UNAVAILABLE"),
    ],
)
def test_target_is_refused_with_grpcios_code(text: str, code: str) -> None:
    refusal = ResolverRegistry([DNS, *STATIC_FACTORIES]).refuse_target(text)
    assert refusal is not None
    assert refusal.code.name == code
    assert refusal.details.startswith("target ")


@pytest.mark.parametrize("text", ["backend:80", "dns:backend", "ipv4:1.2.3.4:80", "unix:/s"])
def test_target_that_can_be_resolved_is_not_refused(text: str) -> None:
    assert ResolverRegistry([DNS, *STATIC_FACTORIES]).refuse_target(text) is None


def test_deferred_factory_is_created_when_a_target_first_has_its_scheme() -> None:
    made: list[StaticFactory] = []

    def make() -> StaticFactory:
        made.append(UNIX)
        return UNIX

    registry = ResolverRegistry([DNS, DeferredResolverFactory("unix", make)])
    assert registry.refuse_target("dns:backend") is None
    assert registry.schemes == ("dns", "unix")
    assert made == []
    for _ in range(2):
        assert registry.refuse_target("unix:/s") is None
        refusal = registry.refuse_target("unix://authority/path")
        assert refusal is not None
    assert made == [UNIX]
