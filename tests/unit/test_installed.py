"""Unit tests of proxyless.installed, with distributions that exist only for the test."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxyless import Registries, installed
from proxyless.base import ValidationErrors, parse_address
from proxyless.installed import POLICIES, RESOLVERS, InstalledPolicies, InstalledResolvers
from proxyless.lb import PolicyRegistry, parse_policy_list
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.resolver import DnsFactory, ResolverRegistry, StaticFactory

# What the packages' modules hold: policies and resolvers of ours under other names.
MODULE = """
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.resolver import DnsFactory

class Policy(RoundRobinFactory):
    name = "{name}"

def make_resolver():
    return DnsFactory(scheme="{name}")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package and its metadata where Python looks for them."""
    names: list[str] = []

    def install(name: str, entry_points: str, module: str = MODULE) -> None:
        place = tmp_path / name
        metadata = place / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        (place / f"{name}.py").write_text(module.replace("{name}", name))
        monkeypatch.syspath_prepend(place)
        names.append(name)
        installed.forget_packages()

    yield install
    installed.forget_packages()
    for name in names:
        sys.modules.pop(name, None)


def list_errors(registry: PolicyRegistry, name: str) -> str:
    errors = ValidationErrors()
    parse_policy_list([{name: {}}], errors, registry)
    return str(errors)


# Found, and not before it is needed.


def test_a_policy_of_a_package_is_known_by_default(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    policies = Registries().policies
    assert "zones" in policies.names
    assert "zones" not in sys.modules
    factory = policies.find("zones")
    assert factory is not None
    assert factory.name == "zones"
    assert policies.find("zones") is factory
    assert list_errors(policies, "zones") == "[]"


def test_a_resolver_of_a_package_is_known_by_default(install: Install) -> None:
    install("zk", f"[{RESOLVERS}]\nzk = zk:make_resolver\n")
    resolvers = Registries().resolvers
    assert "zk" in resolvers.schemes
    assert "zk" not in sys.modules
    for text in ("zk:///orders", "ZK:orders"):
        factory, target = resolvers.match_target(text)
        assert factory.scheme == target.scheme == "zk"
        assert target.name == "orders"


def test_packages_are_not_looked_for_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> None:
        pytest.fail(f"looked for {group}")

    monkeypatch.setattr(installed, "_names", fail)
    known = Registries()
    assert known.policies.find("round_robin") is not None
    for text in ("dns:///orders", "localhost:50051", "10.0.0.1:80", "[::1]:80", "orders"):
        known.resolvers.match_target(text)


def test_what_no_package_offers_is_unknown(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    known = Registries()
    assert known.policies.find("zone") is None
    assert known.resolvers.find("zones") is None
    with pytest.raises(ValueError, match="unknown scheme 'zones'"):
        known.resolvers.match_target("zones:///orders")


# What is nearer wins.


def test_a_package_cannot_take_the_place_of_what_is_built_in(install: Install) -> None:
    install("round_robin", f"[{POLICIES}]\nround_robin = round_robin:Policy\n")
    install("dns", f"[{RESOLVERS}]\ndns = dns:make_resolver\n")
    known = Registries()
    assert type(known.policies.find("round_robin")) is RoundRobinFactory
    factory, _ = known.resolvers.match_target("dns:///orders")
    assert isinstance(factory, DnsFactory)
    assert "dns" not in sys.modules
    assert known.policies.names.count("round_robin") == 1


def test_what_is_handed_over_comes_first_and_packages_stay(install: Install) -> None:
    install(
        "zones", f"[{POLICIES}]\nzones = zones:Policy\n[{RESOLVERS}]\nzk = zones:make_resolver\n"
    )
    own_policy, own_resolver = PickFirstFactory(), StaticFactory("own", parse_address, str)
    known = Registries(InstalledPolicies(), InstalledResolvers(default_scheme="own")).extended(
        policies=[own_policy], resolvers=[own_resolver]
    )
    assert known.policies.find("pick_first") is own_policy
    assert known.policies.find("zones") is not None
    assert known.resolvers.schemes == ("own", "zk")
    factory, _ = known.resolvers.match_target("orders")
    assert factory is own_resolver


def test_registries_of_ones_own_do_not_know_packages(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    known = Registries(PolicyRegistry(), ResolverRegistry())
    assert known.policies.find("zones") is None


# What is wrong with a package is said to whoever uses it.


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    install("zones2", f"[{POLICIES}]\nzones = zones2:Policy\n")
    errors = list_errors(Registries().policies, "zones")
    assert "entry point 'zones' of proxyless.lb_policies is offered by" in errors
    assert "package 'zones' (zones:Policy)" in errors
    assert "package 'zones2' (zones2:Policy)" in errors


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("raise OSError('no licence')", "OSError: no licence"),
        ("", "AttributeError: module 'zones' has no attribute 'Policy'"),
        ("Policy = 1", "TypeError: 'int' object is not callable"),
        ("Policy = object", "AttributeError: 'object' object has no attribute 'name'"),
        (MODULE.replace("{name}", "other"), "factory has the name 'other', wanted 'zones'"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_an_error_of_its_config(
    install: Install, module: str, wanted: str
) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n", module)
    errors = list_errors(Registries().policies, "zones")
    assert "entry point 'zones' of proxyless.lb_policies, by package 'zones'" in errors
    assert wanted in errors


def test_a_resolver_that_cannot_be_loaded_is_an_error_of_its_target(install: Install) -> None:
    install("zk", f"[{RESOLVERS}]\nzk = zk:make_resolver\n", "raise OSError('no licence')")
    with pytest.raises(ValueError, match=r"entry point 'zk' of proxyless\.resolvers.*no licence"):
        Registries().resolvers.match_target("zk:///orders")
