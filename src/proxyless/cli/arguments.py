"""What may a word of a command line be, where argparse itself would take anything?

Each function is a `type` for argparse: it returns what the word means, or says what was wanted.
"""

from __future__ import annotations

import argparse
from typing import Final

PORT_MAX: Final = 65_535
SECONDS_MAX: Final = 86_400.0


def parse_address(text: str) -> str:
    """An address for gRPC, which itself would take port 65536 for 0."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted host:port or unix:path")
    if not text.startswith(("unix:", "unix-abstract:")):
        _, colon, port = text.rpartition(":")
        # Without one, gRPC takes 443, where nothing of ours is.
        if not colon or not port.isdecimal():
            raise argparse.ArgumentTypeError(f"got {text!r}, wanted host:port or unix:path")
        parse_port(port)
    return text


def parse_method(text: str) -> str:
    """The path of a method, however it is written: `/pkg.Service/Method`."""
    path = text if text.startswith("/") else f"/{text}"
    service, _, method = path[1:].partition("/")
    if not service or not method or any(each.isspace() for each in path):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted /package.Service/Method")
    return path


def parse_port(text: str) -> int:
    """A port; 0 is any."""
    if not text.isdecimal() or int(text[:6]) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a port from 0 to {PORT_MAX}")
    return int(text)


def parse_timeout(text: str) -> float:
    """Seconds to wait, of which there have to be some."""
    seconds = parse_number(text)
    if not 0 < seconds <= SECONDS_MAX:
        wanted = f"more than 0 seconds, at most {SECONDS_MAX:.0f}"
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted {wanted}")
    return seconds


def parse_number(text: str) -> float:
    """A number, in words of our own if it is none."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number") from None
