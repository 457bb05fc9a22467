"""Unit tests of proxyless.resolver.static."""

import pytest

from proxyless.resolver import STATIC_FACTORIES, ResolverRegistry
from proxyless.resolver.static import UNIX_AUTHORITY
from tests.worlds.resolvers import ResolverWorld

REGISTRY = ResolverRegistry(STATIC_FACTORIES, default_scheme="ipv4")


def resolve(text: str) -> list[list[str]]:
    """The results for a target, each as texts of its endpoints."""
    world = ResolverWorld()
    factory, target = REGISTRY.match_target(text)
    factory.create(target, world.listener, world.context).start()
    world.clock.advance(0)
    return world.listener.addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("ipv4:1.2.3.4:80", ["1.2.3.4:80"]),
        ("ipv4:5.6.7.8:90,1.2.3.4:80", ["5.6.7.8:90", "1.2.3.4:80"]),
        ("ipv4:1.2.3.4:80,1.2.3.4:80", ["1.2.3.4:80", "1.2.3.4:80"]),
        ("ipv4:1.2.3.4", ["1.2.3.4:443"]),
        ("ipv4:///1.2.3.4:80", ["1.2.3.4:80"]),
        ("ipv4:1.2.3.4:80,,", ["1.2.3.4:80"]),
        ("ipv6:[::1]:80,[2001:DB8::0:1]:81", ["[::1]:80", "[2001:db8::1]:81"]),
        ("ipv6:::1", ["[::1]:443"]),
        ("ipv6:%5B::1%5D:80", ["[::1]:80"]),
        ("ipv6:[fe80::1%25eth0]:80", ["[fe80::1%eth0]:80"]),
        ("ipv6:[::ffff:1.2.3.4]:80", ["[::ffff:1.2.3.4]:80"]),
        ("unix:/run/s", ["unix:/run/s"]),
        ("unix:///run/s", ["unix:/run/s"]),
        ("unix:run/s", ["unix:run/s"]),
        ("unix:/a,/b", ["unix:/a", "unix:/b"]),
        ("unix-abstract:name", ["unix-abstract:name"]),
    ],
)
def test_each_address_of_the_target_is_an_endpoint_in_its_order(
    text: str, addresses: list[str]
) -> None:
    assert resolve(text) == [addresses]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ipv4:[::1]:80", "address '[::1]:80' is not valid: wanted an IPv4 address"),
        ("ipv4:host:80", "host 'host' is not valid: wanted a literal IP address"),
        ("ipv4:1.2.3.4:80, 1.2.3.4:80", "name ' 1.2.3.4:80' has host ' 1.2.3.4'"),
        ("ipv4:1.2.3.4:99999", "name '1.2.3.4:99999' has port '99999': wanted 0 to 65535"),
        ("ipv4:,", "list has no address: wanted ipv4:address"),
        ("ipv4://auth/1.2.3.4:80", "authority 'auth' is not valid: wanted none, as in ipv4:addr"),
        ("ipv6:1.2.3.4:80", "address '1.2.3.4:80' is not valid: wanted [ipv6]:port"),
        ("unix://auth/s", "authority 'auth' is not valid: wanted none, as in unix:address"),
        ("unix:%00name", "address 'unix:\\x00name' is not valid: wanted unix-abstract:name"),
        ("unix-abstract:a%00b", "unix path '\\x00a\\x00b' is not valid: wanted a name without NUL"),
    ],
)
def test_error_names_the_malformed_target(text: str, expected: str) -> None:
    world = ResolverWorld()
    factory, target = REGISTRY.match_target(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared.
        factory.create(target, world.listener, world.context)
    assert str(caught.value).startswith(f"target '{target}': {expected}")


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("ipv4:1.2.3.4:80", "1.2.3.4:80"),
        ("ipv4:1.2.3.4", "1.2.3.4"),
        ("ipv4:5.6.7.8:90,1.2.3.4:80", "5.6.7.8:90"),
        ("ipv6:[::1]:80,[::2]:80", "[::1]:80"),
        ("ipv6:::1", "[::1]"),
        ("unix:/run/s", UNIX_AUTHORITY),
        ("unix-abstract:name", UNIX_AUTHORITY),
    ],
)
def test_the_default_authority_is_the_first_address_and_localhost_for_sockets(
    text: str, authority: str
) -> None:
    factory, target = REGISTRY.match_target(text)
    assert factory.default_authority(target) == authority


def test_a_target_without_an_address_has_no_authority_either() -> None:
    factory, target = REGISTRY.match_target("ipv4:,")
    with pytest.raises(ValueError, match="target 'ipv4:,': list has no address"):
        factory.default_authority(target)
