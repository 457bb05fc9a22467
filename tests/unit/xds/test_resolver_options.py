"""Unit tests of proxyless.xds.resolver_options: channel, then environment, then bootstrap."""

from __future__ import annotations

import pytest

from proxyless.front import insecure_channel_credentials, parse_options
from proxyless.resolver import ResolverOptions
from proxyless.xds.bootstrap import Bootstrap, load_bootstrap
from proxyless.xds.resolver_options import XdsResolverOptions, choose_options

TIMEOUT = "proxyless.xds_default_route_timeout_ms"
HOLD = "proxyless.xds_hold_config"


def bootstrap(**own: object) -> Bootstrap:
    server = {"server_uri": "td:443", "channel_creds": [{"type": "insecure"}]}
    made = load_bootstrap({"xds_servers": [server], "proxyless": own}, {})
    assert isinstance(made, Bootstrap), made
    return made


def resolver_options(*options: tuple[str, object]) -> ResolverOptions:
    """The options as a channel passes them to its resolver."""
    return parse_options(options, insecure_channel_credentials()).channel.resolver


def test_defaults_are_those_of_a31_and_d50() -> None:
    assert choose_options(ResolverOptions(), bootstrap()) == XdsResolverOptions(15.0, True, None)


@pytest.mark.parametrize(
    ("option_ms", "variable", "field", "wanted_s"),
    [
        (None, None, None, 15.0),
        (None, None, "0s", 0.0),
        (None, "2.5", "0s", 2.5),
        (0, "2.5", "60s", 0.0),
        (4_000, None, "60s", 4.0),
    ],
)
def test_timeout_of_the_channel_wins_over_the_environment_and_the_bootstrap(
    option_ms: int | None,
    variable: str | None,
    field: str | None,
    wanted_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is not None:
        monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", variable)
    options = resolver_options() if option_ms is None else resolver_options((TIMEOUT, option_ms))
    own = {} if field is None else {"default_route_timeout": field}
    assert choose_options(options, bootstrap(**own)).default_timeout_s == wanted_s


@pytest.mark.spec("HOLD-07")
@pytest.mark.parametrize(
    ("option", "variable", "wanted"),
    [
        (None, "", True),
        (None, "true", True),
        (None, "False", False),
        (1, "false", True),
        (0, "", False),
    ],
)
def test_hold_of_the_channel_wins_over_the_environment(
    option: int | None, variable: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_XDS_HOLD_CONFIG", variable)
    options = resolver_options() if option is None else resolver_options((HOLD, option))
    assert choose_options(options, bootstrap()).holds_config is wanted
