"""Unit tests of proxyless.assembly: invalid arguments of a channel."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.experimental
import pytest

import proxyless
import proxyless.aio
from proxyless import assembly
from proxyless.runtime import LogTrace

MAKERS: dict[str, Callable[..., Any]] = {
    "asyncio": proxyless.aio.insecure_channel,
    "blocking": proxyless.insecure_channel,
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MAKERS[request.param]


# Targets


UNKNOWN, UNAVAILABLE = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("target", "code", "text"),
    [
        ("", UNKNOWN, "target is empty: wanted scheme:///name or host:port"),
        ("dns:///", UNKNOWN, "target 'dns:///' has no name to resolve: wanted dns:///name"),
        ("dns://host", UNKNOWN, "target 'dns://host' has no name to resolve: wanted dns:///host"),
        ("dns:///host:port", UNAVAILABLE, "name 'host:port' has port 'port': wanted 0 to 65535"),
        ("host:99999", UNAVAILABLE, "name 'host:99999' has port '99999': wanted 0 to 65535"),
        ("host:80/path", UNAVAILABLE, "name 'host:80/path' has port '80/path': wanted 0 to 65535"),
        ("foo/bar", UNAVAILABLE, "name 'foo/bar' has host 'foo/bar': wanted host, host:port"),
        (b"host:99999", UNAVAILABLE, "name 'host:99999' has port '99999': wanted 0 to 65535"),
        ("[::1", UNAVAILABLE, "name '[::1' is not valid: wanted [ipv6] or [ipv6]:port"),
        ("a b:80", UNAVAILABLE, "name 'a b:80' has host 'a b': wanted host, host:port or [ipv6]"),
        ("dns://8.8.8.8/host", UNAVAILABLE, "authority '8.8.8.8' is not valid: wanted none"),
        ("ipv4:1.2.3", UNKNOWN, "host '1.2.3' is not valid: wanted a literal IP address"),
        ("ipv4:1.2.3.4:80,host:80", UNKNOWN, "host 'host' is not valid: wanted a literal IP"),
        ("ipv4:[::1]:80", UNKNOWN, "address '[::1]:80' is not valid: wanted an IPv4 address"),
        ("ipv6:1.2.3.4:80", UNKNOWN, "address '1.2.3.4:80' is not valid: wanted [ipv6]:port"),
        ("unix:", UNKNOWN, "target 'unix:' has no name to resolve: wanted unix:///name"),
        (
            "htps://backend",
            UNAVAILABLE,
            "target 'htps://backend' has the unknown scheme 'htps': wanted one of dns, ipv4, ipv6,",
        ),
    ],
)
async def test_an_invalid_target_fails_its_rpcs(
    target: str | bytes, code: grpc.StatusCode, text: str
) -> None:
    async with proxyless.aio.insecure_channel(target) as channel:  # type: ignore[arg-type]
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary("/a.B/C")(b"", timeout=10.0)
        assert caught.value.code() is code
        assert text in (caught.value.details() or "")
        assert text in proxyless.explain_error(caught.value).text
        assert text in channel.explain("/a.B/C").problem


@pytest.mark.parametrize("target", [None, 5])
def test_a_target_that_is_not_text_raises(make: Callable[..., Any], target: object) -> None:
    with pytest.raises(TypeError) as caught:
        make(target)
    assert str(caught.value) == f"target is {target!r}, wanted a string"


# Options


def test_a_bad_service_config_names_every_field(make: Callable[..., Any]) -> None:
    config = (
        '{"methodConfig": [{"name": [{"service": 5}], "timeout": "1"}],'
        ' "loadBalancingConfig": [{"no_such_policy": {}}]}'
    )
    with pytest.raises(ValueError, match="service config of the channel") as caught:
        make("host:80", options=[("grpc.service_config", config)])
    for text in (
        "field:methodConfig[0].timeout error:is '1', wanted a duration such as '1.5s'",
        "field:methodConfig[0].name[0].service error:is 5, wanted a string",
        "field:loadBalancingConfig error:",
    ):
        assert text in str(caught.value)


def test_an_unknown_policy_raises(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"option 'grpc\.lb_policy_name': .* no_such_policy"):
        make("host:80", options=[("grpc.lb_policy_name", "no_such_policy")])


def test_an_option_of_the_wrong_type_raises(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"'grpc\.keepalive_time_ms' is 'often', wanted an integer"):
        make("host:80", options=[("grpc.keepalive_time_ms", "often")])


def test_an_unknown_compression_raises(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"'zip' is not known, wanted a grpc\.Compression"):
        make("host:80", compression="zip")


# Credentials


@pytest.mark.parametrize("maker", [proxyless.aio.secure_channel, proxyless.secure_channel])
@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (None, "channel credentials are NoneType: wanted proxyless.ssl_channel_credentials"),
        ("tls", "channel credentials are str: wanted proxyless.ssl_channel_credentials"),
    ],
)
def test_credentials_that_are_not_supported_raise(
    maker: Callable[..., Any], credentials: object, text: str
) -> None:
    with pytest.raises(TypeError) as caught:
        maker("host:80", credentials)
    assert str(caught.value).startswith(text)


def custom_signer() -> grpc.ChannelCredentials:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The function is experimental.
        made: grpc.ChannelCredentials = (
            grpc.experimental.ssl_channel_credentials_with_custom_signer(
                private_key_sign_fn=lambda *_: b"", certificate_chain=b"chain"
            )
        )
    return made


def compute_engine() -> grpc.ChannelCredentials:
    return grpc.compute_engine_channel_credentials(grpc.access_token_call_credentials("token"))


@pytest.mark.parametrize("maker", [proxyless.aio.secure_channel, proxyless.secure_channel])
@pytest.mark.parametrize(
    ("make_credentials", "reason", "instead"),
    [
        pytest.param(
            custom_signer,
            "channel credentials have a custom signer, which Python's ssl module cannot call",
            "wanted grpc.ssl_channel_credentials(...) with the private key",
            marks=pytest.mark.skipif(
                not hasattr(grpc.experimental, "ssl_channel_credentials_with_custom_signer"),
                reason="this grpcio has no custom signers",
            ),
        ),
        (
            grpc.alts_channel_credentials,
            "channel credentials are ALTSChannelCredentials, which only grpcio itself can use",
            "wanted TLS, as in grpc.ssl_channel_credentials(...)",
        ),
        (
            compute_engine,
            (
                "channel credentials are ComputeEngineChannelCredentials, which only grpcio itself"
                " can use"
            ),
            (
                "wanted TLS and a token, as in grpc.composite_channel_credentials("
                "grpc.ssl_channel_credentials(), call_credentials)"
            ),
        ),
    ],
    ids=["custom signer", "ALTS", "compute engine"],
)
@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "inside a composite"])
def test_grpcio_credentials_raise_with_reason_and_replacement(
    maker: Callable[..., Any],
    make_credentials: Callable[[], Any],
    reason: str,
    instead: str,
    is_inside: bool,
) -> None:
    credentials = make_credentials()
    if is_inside:
        token = grpc.access_token_call_credentials("token")
        credentials = grpc.composite_channel_credentials(credentials, token)
    with pytest.raises(TypeError) as caught:
        maker("host:80", credentials)
    assert str(caught.value) == f"{reason}: {instead}"


# Logs


def test_the_first_channel_of_a_process_applies_the_log_settings_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str | None] = []
    monkeypatch.setattr(
        assembly, "apply_environment", lambda environ: read.append(environ.get("GRPC_TRACE"))
    )
    monkeypatch.setenv("GRPC_TRACE", "xds_client")
    assembly._apply_environment_once.cache_clear()
    for _ in range(3):
        proxyless.insecure_channel("dns:///orders:80").close()
    assert read == ["xds_client"]


async def test_the_stack_of_a_loop_has_a_log_trace() -> None:
    assert isinstance(assembly.stack_of_running_loop().trace, LogTrace)


def test_the_library_logs_nothing_by_default() -> None:
    handlers = logging.getLogger("proxyless").handlers
    assert any(isinstance(each, logging.NullHandler) for each in handlers)


@pytest.mark.parametrize("bootstrap", [{}, "/etc/bootstrap.json", Path("bootstrap.json"), None])
def test_bootstrap_may_be_a_document_or_a_path(bootstrap: Any) -> None:  # noqa: ANN401
    assert assembly.ChannelSettings(bootstrap=bootstrap).bootstrap is bootstrap


@pytest.mark.parametrize("bootstrap", [5, b"/etc/bootstrap.json", ["a"]])
def test_bootstrap_of_another_type_is_refused_at_the_call(bootstrap: Any) -> None:  # noqa: ANN401
    kind = type(bootstrap).__name__
    text = f"bootstrap is of type {kind}, wanted a mapping or the path of a file"
    for make in (proxyless.insecure_channel, proxyless.aio.insecure_channel):
        with pytest.raises(TypeError, match=text):
            make("xds:///orders", bootstrap=bootstrap)


def test_registries_of_another_type_are_refused_at_the_call() -> None:
    registries: Any = ["a policy"]
    text = "registries is of type list, wanted proxyless.Registries"
    for make in (proxyless.insecure_channel, proxyless.aio.insecure_channel):
        with pytest.raises(TypeError, match=text):
            make("xds:///orders", registries=registries)
