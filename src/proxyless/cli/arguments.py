"""Argument types for argparse: each parses one argument, or raises ArgumentTypeError."""

from __future__ import annotations

import argparse
from typing import Final

PORT_MAX: Final = 65_535
SECONDS_MAX: Final = 86_400.0


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
    seconds = parse_number(text)
    if not 0 < seconds <= SECONDS_MAX:
        wanted = f"more than 0 seconds, at most {SECONDS_MAX:.0f}"
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted {wanted}")
    return seconds


def parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number") from None
