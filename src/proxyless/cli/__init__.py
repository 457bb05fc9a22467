"""The command `proxyless`: one file per command.

demo     a mesh on this machine that fails over under load
explain  why an RPC would go where it goes, from files or a running process
lint     what clients would make of the resources in some files
serve    a control plane from a directory of files
simulate what clients see when the mesh of some files has a bad day, in virtual time
status   what the xDS clients of a process hold

Each command's module has `add_parser`, which says what it takes, and `run`, which does it and
returns the exit code: 0 for done, 1 for failed, 2 for a command line that makes no sense.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from proxyless.cli import demo, explain, lint, serve, simulate, status
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

COMMANDS: Final = (demo, serve, lint, explain, simulate, status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own unless given; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="proxyless", description="gRPC's xDS client stack in pure Python."
    )
    parser.add_argument("--version", action="version", version=f"proxyless {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    parsed = parser.parse_args(arguments)
    code: int = parsed.run(parsed)
    return code
