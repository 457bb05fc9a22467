"""Unit tests of proxyless.cli.dialing without a mesh. Others are in tests/e2e."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from proxyless.cli.dialing import (
    add_channel_options,
    check_channel_options,
    make_credentials,
    open_channel,
)
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


def parse(*words: str, target: str = "xds:///api") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_channel_options(parser)
    return parser.parse_args(words, argparse.Namespace(parser=parser, target=target))


def test_credentials_are_of_xds_with_nothing_or_tls_as_fallback(tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(b"roots")
    plain, secure = make_credentials(parse()), make_credentials(parse("--tls"))
    assert plain.is_xds
    assert plain.tls is None
    assert secure.is_xds
    assert secure.tls is not None
    given = make_credentials(parse("--tls", "--cacert", str(roots)))
    assert given.tls is not None
    assert given.tls.root_certificates == b"roots"


@pytest.mark.parametrize(
    ("words", "target", "what"),
    [
        (["--key", "x"], "xds:///api", "--key: has no effect without --tls"),
        (["--tls", "--key", "x"], "xds:///api", "--cert: wanted together with --key"),
        (["--bootstrap", "x"], "dns:///api", "--bootstrap: has no effect for target"),
    ],
)
def test_options_without_effect_are_refused(
    words: list[str], target: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        check_channel_options(parse(*words, target=target))
    assert what in capsys.readouterr().err


def test_xds_target_needs_a_bootstrap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    check_channel_options(parse(target="dns:///api"))
    check_channel_options(parse("--bootstrap", "x"))
    with pytest.raises(SystemExit):
        check_channel_options(parse())
    assert "argument --bootstrap: wanted, because neither" in capsys.readouterr().err
    monkeypatch.setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "{}")
    check_channel_options(parse())


async def test_channel_has_target_and_credentials() -> None:
    async with backends("a") as (backend,), open_channel(parse(target=backend.address)) as channel:
        assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"a"
