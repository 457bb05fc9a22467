"""Unit tests of proxyless.entry_points, with distributions that exist only for the test."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxyless import Registries, entry_points
from proxyless.base import ValidationErrors, parse_address
from proxyless.cli import main
from proxyless.controlplane import Snapshot, eds_cluster, endpoints, http_filter, listener, route
from proxyless.entry_points import (
    FILTERS,
    POLICIES,
    RESOLVERS,
    InstalledFilters,
    InstalledPolicies,
    InstalledResolvers,
)
from proxyless.lb import PolicyRegistry, parse_policy_list
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.protos import message_class
from proxyless.resolver import DnsFactory, ProxiedFactory, ResolverRegistry, StaticFactory
from proxyless.xds.filters import FilterRegistry
from proxyless.xds.filters.fault import FaultFilterFactory
from proxyless.xds.filters.router import ROUTER_TYPE, RouterFilterFactory
from tests.mesh_files import write_resources

# Module of the packages: policies, resolvers and filters of ours under other names.
MODULE = """
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.resolver import DnsFactory
from proxyless.xds.filters.fault import FaultFilterFactory

class Policy(RoundRobinFactory):
    name = "{name}"

def make_resolver():
    return DnsFactory(scheme="{name}")

class Filter(FaultFilterFactory):
    config_types = ("{name}.Config",)
    override_types = ("{name}.Override",)
"""

Install = Callable[..., None]


@pytest.fixture(name="install")
def install_of_ours(install: Callable[[str, str, str], None]) -> Install:
    """Installs packages with the module above by default."""

    def install_named(name: str, entry_points: str, module: str = MODULE) -> None:
        install(name, entry_points, module.replace("{name}", name))

    return install_named


def list_errors(registry: PolicyRegistry, name: str) -> str:
    errors = ValidationErrors()
    parse_policy_list([{name: {}}], errors, registry)
    return str(errors)


# Lookup


def test_a_policy_of_a_package_is_found_by_default(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    policies = Registries().policies
    assert "zones" in policies.names
    assert "zones" not in sys.modules
    factory = policies.find("zones")
    assert factory is not None
    assert factory.name == "zones"
    assert policies.find("zones") is factory
    assert list_errors(policies, "zones") == "[]"


def test_a_resolver_of_a_package_is_found_by_default(install: Install) -> None:
    install("zk", f"[{RESOLVERS}]\nzk = zk:make_resolver\n")
    resolvers = Registries().resolvers
    assert "zk" in resolvers.schemes
    assert "zk" not in sys.modules
    for text in ("zk:///orders", "ZK:orders"):
        factory, target = resolvers.match_target(text)
        assert factory.scheme == target.scheme == "zk"
        assert target.name == "orders"


def test_a_filter_of_a_package_is_found_by_default(install: Install) -> None:
    offers = "tenants.Config = tenants:Filter\ntenants.Override = tenants:Filter\n"
    install("tenants", f"[{FILTERS}]\n{offers}")
    filters = Registries().filters
    assert {"tenants.Config", "tenants.Override"} <= set(filters.type_names)
    assert "tenants" not in sys.modules
    factory = filters.get("tenants.Config")
    assert factory is not None
    assert factory.config_types == ("tenants.Config",)
    assert filters.get("tenants.Config") is factory
    assert type(filters.get("tenants.Override")) is type(factory)
    assert filters.get("tenants.Other") is None


def test_entry_points_are_not_read_for_built_in_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> None:
        pytest.fail(f"looked for {group}")

    monkeypatch.setattr(entry_points, "_names", fail)
    registries = Registries()
    assert registries.policies.find("round_robin") is not None
    assert registries.filters.get(ROUTER_TYPE) is not None
    for text in ("dns:///orders", "localhost:50051", "10.0.0.1:80", "[::1]:80", "orders"):
        registries.resolvers.match_target(text)


def test_a_name_that_no_package_offers_is_unknown(install: Install) -> None:
    install("zones", f"[{POLICIES}]\nzones = zones:Policy\n")
    registries = Registries()
    assert registries.policies.find("zone") is None
    assert registries.resolvers.find("zones") is None
    with pytest.raises(ValueError, match="unknown scheme 'zones'"):
        registries.resolvers.match_target("zones:///orders")


# Precedence


def test_a_package_cannot_replace_what_is_built_in(install: Install) -> None:
    install("round_robin", f"[{POLICIES}]\nround_robin = round_robin:Policy\n")
    install("dns", f"[{RESOLVERS}]\ndns = dns:make_resolver\n")
    registries = Registries()
    assert type(registries.policies.find("round_robin")) is RoundRobinFactory
    factory, _ = registries.resolvers.match_target("dns:///orders")
    assert isinstance(factory, ProxiedFactory)
    assert isinstance(factory.inner, DnsFactory)
    assert "dns" not in sys.modules
    assert registries.policies.names.count("round_robin") == 1


def test_a_package_cannot_replace_a_built_in_filter(install: Install) -> None:
    install("routers", f"[{FILTERS}]\n{ROUTER_TYPE} = routers:Filter\n")
    filters = Registries().filters
    assert isinstance(filters.get(ROUTER_TYPE), RouterFilterFactory)
    assert filters.type_names.count(ROUTER_TYPE) == 1


def test_registered_factories_precede_those_of_packages(install: Install) -> None:
    install(
        "zones", f"[{POLICIES}]\nzones = zones:Policy\n[{RESOLVERS}]\nzk = zones:make_resolver\n"
    )
    own_policy, own_resolver = PickFirstFactory(), StaticFactory("own", parse_address, str)
    registries = Registries(InstalledPolicies(), InstalledResolvers(default_scheme="own")).extended(
        policies=[own_policy], resolvers=[own_resolver]
    )
    assert registries.policies.find("pick_first") is own_policy
    assert registries.policies.find("zones") is not None
    assert registries.resolvers.schemes == ("own", "zk")
    factory, _ = registries.resolvers.match_target("orders")
    assert factory is own_resolver


def test_registered_filters_precede_those_of_packages(install: Install) -> None:
    install("tenants", f"[{FILTERS}]\ntenants.Config = tenants:Filter\n")
    own = FaultFilterFactory()
    registries = Registries(filters=InstalledFilters()).extended(filters=[own])
    assert all(registries.filters.get(name) is own for name in own.config_types)
    assert registries.filters.get("tenants.Config") is not None
    assert registries.filters.get(ROUTER_TYPE) is None


def test_plain_registries_ignore_packages(install: Install) -> None:
    install(
        "zones", f"[{POLICIES}]\nzones = zones:Policy\n[{FILTERS}]\nzones.Config = zones:Filter\n"
    )
    registries = Registries(PolicyRegistry(), ResolverRegistry(), FilterRegistry())
    assert registries.policies.find("zones") is None
    assert registries.filters.get("zones.Config") is None


# Errors of packages


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


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("raise OSError('no licence')", "OSError: no licence"),
        ("Filter = object", "AttributeError: 'object' object has no attribute 'is_terminal'"),
        ("class Filter: is_terminal = 0", "TypeError: is_terminal is 0, wanted True or False"),
        (
            MODULE.replace("{name}", "other"),
            "factory has the message 'other.Config' and 'other.Override', wanted 'tenants.Config'",
        ),
    ],
)
def test_a_filter_that_cannot_be_loaded_is_an_error_of_its_config(
    install: Install, module: str, wanted: str
) -> None:
    install("tenants", f"[{FILTERS}]\ntenants.Config = tenants:Filter\n", module)
    factory = Registries().filters.get("tenants.Config")
    assert factory is not None
    assert not factory.is_terminal
    assert factory.config_types == factory.override_types == ("tenants.Config",)
    for parse in (factory.parse_config, factory.parse_override):
        errors = ValidationErrors()
        parse({}, errors)
        text = str(errors)
        assert "entry point 'tenants.Config' of proxyless.http_filters, by package" in text
        assert wanted in text


def test_two_packages_with_one_filter_are_both_named(install: Install) -> None:
    install("tenants", f"[{FILTERS}]\ntenants.Config = tenants:Filter\n")
    install("copy", f"[{FILTERS}]\ntenants.Config = copy:Filter\n")
    factory = Registries().filters.get("tenants.Config")
    assert factory is not None
    errors = ValidationErrors()
    factory.parse_config({}, errors)
    assert "is offered by package 'copy' (copy:Filter) and by package 'tenants'" in str(errors)


# Commands that read files use the packages.

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenant_filter.py"
OFFER = f"[{FILTERS}]\nexample.Tenants = tenant_package:TenantFilterFactory\n"


def tenants_mesh() -> Snapshot:
    tenants = message_class("xds.type.v3.TypedStruct")(
        type_url="type.googleapis.com/example.Tenants"
    )
    tenants.value.update({"clusters": {"gold": "fast"}, "others": "usual", "blocked": []})
    either = route(weighted={"usual": 1, "fast": 1})
    return Snapshot.of(
        [
            listener("shop", [either], filters=[http_filter("tenants", tenants)]),
            *(eds_cluster(name) for name in ("usual", "fast")),
            endpoints("usual", ["10.0.0.1:80"]),
            endpoints("fast", ["10.0.0.2:80"]),
        ]
    )


@pytest.fixture
def mesh(tmp_path: Path) -> str:
    write_resources(tmp_path / "mesh.json", tenants_mesh())
    return str(tmp_path)


COMMANDS = [
    ["lint", "{mesh}"],
    ["explain", "/shop.Cart/Add", "--config", "{mesh}", "--target", "xds:///shop"],
    ["simulate", "{mesh}", "--method", "/shop.Cart/Add", "--duration", "1s"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_filter_of_a_package_is_found_by_commands(
    install: Install, mesh: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("{mesh}", mesh) for word in command]
    assert main(words) == 1
    assert "wanted one of a known filter" in capsys.readouterr().out
    install("tenant_package", OFFER, EXAMPLE.read_text())
    assert main(words) == 0
    output = capsys.readouterr()
    assert "known filter" not in output.out
    assert output.err == ""


def test_simulated_clients_run_the_filter(
    install: Install, mesh: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("tenant_package", OFFER, EXAMPLE.read_text())
    assert main(["simulate", mesh, "--method", "/shop.Cart/Add", "--duration", "10s"]) == 0
    out = capsys.readouterr().out
    # Without the tenant "gold", the filter chooses between two clusters of equal weight.
    assert "100 RPCs, 0 failed" in out
    assert "usual" in out
    assert "fast" not in out
