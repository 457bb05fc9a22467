"""Argument types for argparse: each parses one argument, or raises ArgumentTypeError."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

PORT_MAX: Final = 65_535
SECONDS_MAX: Final = 86_400.0

# The first one in a header ends its key: a key has neither.
_HEADER_END: Final = re.compile(r"[:=]")


def parse_address(text: str) -> str:
    """Address for gRPC, with a valid port: gRPC itself would use port 0 for 65536."""
    if not text.startswith(("unix:", "unix-abstract:")):
        _, colon, port = text.rpartition(":")
        # Without a port gRPC would use 443.
        if not colon or not port.isdecimal():
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted host:port or unix:path")
        parse_port(port)
    return text


def parse_method(text: str) -> str:
    """Path of a method, `/pkg.Service/Method`; the first slash is optional."""
    path = text if text.startswith("/") else f"/{text}"
    service, _, method = path[1:].partition("/")
    if not service or not method or any(each.isspace() for each in path):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted /package.Service/Method")
    return path


def parse_port(text: str) -> int:
    if not text.isdecimal() or int(text[:6]) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a port from 0 to {PORT_MAX}")
    return int(text)


def parse_timeout(text: str) -> float:
    """Seconds of `2`, `2s`, `500ms` or `1m30s`."""
    # Imported here: `--help` loads no other package.
    from proxyless.base.durations import parse_seconds  # noqa: PLC0415

    seconds = parse_seconds(text) or parse_seconds(f"{text}s") or 0.0
    if not 0 < seconds <= SECONDS_MAX:
        wanted = f"a time such as 2s or 500ms, at most {SECONDS_MAX:.0f} s"
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted {wanted}")
    return seconds


def parse_header(text: str) -> tuple[str, str]:
    """Key and value of `key: value` or `key=value`; the key in lower case.

    A value after a colon has no spaces around it. A value after an equals sign is kept as it is.
    """
    # Imported here, as most commands have no headers.
    from proxyless.base import validate_metadata  # noqa: PLC0415

    end = _HEADER_END.search(text)
    key = text[: end.start()].strip().lower() if end else ""
    if end is None or not key:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted 'key: value' or key=value")
    value = text[end.end() :]
    if end[0] == ":":
        value = value.strip()
    try:
        validate_metadata([(key, value.encode())])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return key, value


def add_header_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        metavar="HEADER",
        action="append",
        type=parse_header,
        default=[],
        help="metadata of the RPC, 'key: value' or key=value; may be repeated",
    )


def add_timeout_option(parser: argparse.ArgumentParser, default_s: float, what: str) -> None:
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=parse_timeout,
        default=default_s,
        help=f"{what}, such as 2s or 500ms (default: {default_s:g}s)",
    )


def parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number") from None


def refuse_options(parsed: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Exit with a usage error if one of these options was given, as it would have no effect."""
    for name in names:
        if getattr(parsed, name) != parsed.parser.get_default(name):
            option = f"--{name.replace('_', '-')}"
            parsed.parser.error(f"argument {option}: has no effect {reason}")
