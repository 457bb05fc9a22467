"""Channels of commands that connect to a mesh: the options that describe one, and its creation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from proxyless import aio
from proxyless.front import (
    insecure_channel_credentials,
    ssl_channel_credentials,
    xds_channel_credentials,
)

if TYPE_CHECKING:
    import argparse

    from proxyless.front import AioChannel, ChannelCredentials


def add_channel_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="FILE",
        help="bootstrap of the xDS client (default: the one that GRPC_XDS_BOOTSTRAP names)",
    )
    parser.add_argument(
        "--tls", action="store_true", help="TLS where the control plane configures none"
    )
    parser.add_argument(
        "--cacert", metavar="FILE", type=Path, help="roots of --tls (default: the system's)"
    )
    parser.add_argument(
        "--cert", metavar="FILE", type=Path, help="certificate chain of --tls; needs --key"
    )
    parser.add_argument("--key", metavar="FILE", type=Path, help="private key of --tls")


def check_channel_options(parsed: argparse.Namespace) -> None:
    """Exit with a usage error if an option would have no effect, or the bootstrap is missing."""
    given = [name for name in ("cacert", "cert", "key") if getattr(parsed, name) is not None]
    if given and not parsed.tls:
        parsed.parser.error(f"argument --{given[0]}: has no effect without --tls")
    if (parsed.cert is None) is not (parsed.key is None):
        parsed.parser.error("argument --cert: wanted together with --key")
    if parsed.bootstrap is not None and not parsed.target.startswith("xds:"):
        parsed.parser.error(f"argument --bootstrap: has no effect for target {parsed.target!r}")
    if parsed.bootstrap is None and parsed.target.startswith("xds:"):
        variables = ("GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG")
        if not any(map(os.environ.get, variables)):
            parsed.parser.error(
                "argument --bootstrap: wanted, because neither of the variables "
                f"{' and '.join(variables)} is set; see: proxyless init DIR"
            )


def open_channel(parsed: argparse.Namespace) -> AioChannel:
    """Create the channel that the options describe.

    Raises ValueError for a bad target, and OSError if a file of TLS cannot be read.
    """
    return aio.secure_channel(parsed.target, make_credentials(parsed), bootstrap=parsed.bootstrap)


def make_credentials(parsed: argparse.Namespace) -> ChannelCredentials:
    """xDS credentials, with TLS or nothing as the fallback."""
    if not parsed.tls:
        return xds_channel_credentials(insecure_channel_credentials())
    files = (
        None if path is None else path.read_bytes()
        for path in (parsed.cacert, parsed.key, parsed.cert)
    )
    return xds_channel_credentials(ssl_channel_credentials(*files))
