"""The command `proxyless`: one module per command.

demo     a mesh on this machine that fails over under load
explain  why an RPC would go where it goes, from files or a running process
lint     what clients would make of the resources in some files
serve    a control plane from a directory of files
simulate what clients see when the mesh of some files has a bad day, in virtual time
status   what the xDS clients of a process hold

arguments       types of arguments that several commands take
output          tables, JSON and errors
resource_files  the resources of files, for `explain` and `lint`

Each command's module has `fill_parser`, which says what it takes, and `run`, which does it and
returns the exit code: 0 for done, 1 for failed, 2 for a command line that makes no sense. Only the
module of the command that is named is imported: together they need all that there is.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# What each is for, in the order in which they are shown.
COMMANDS: Final = {
    "demo": "show a mesh on this machine that fails over under load",
    "serve": "serve xDS from a directory of YAML and JSON files",
    "lint": "say what clients would refuse, ignore or misunderstand in xDS resources",
    "explain": "say why an RPC would go where it goes, from files or a running process",
    "simulate": "run the mesh of some files in virtual time, with faults",
    "status": "show what the xDS clients of a process hold",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own unless given; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # To import a command takes long enough for somebody to change their mind.
        parsed, unknown = _make_parser(given).parse_known_args(given)
        if unknown:
            # In the words of the command: whoever mistyped an option wants to see the others.
            parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        _prepare_output()
        return _run(parsed)
    except KeyboardInterrupt:
        print("proxyless: interrupted", file=sys.stderr)
        return 1


def _make_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Knows all about the command that is named, and of the others what they are for."""
    parser = argparse.ArgumentParser(
        prog="proxyless", description="gRPC's xDS client stack in pure Python."
    )
    parser.add_argument("--version", action="version", version=f"proxyless {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((each for each in given if each in COMMANDS), None)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        command.set_defaults(parser=command)
        if name == named:
            import_module(f"{__name__}.{name}").fill_parser(command)
    return parser


def _prepare_output() -> None:
    """Whatever standard output is, it takes whatever we say."""
    if sys.stdout is None:  # It was closed before we began.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        # For names of files that are no UTF-8, and for those who see nothing but ASCII.
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(parsed: argparse.Namespace) -> int:
    """What the command returns; 1 if nobody takes what it has to say."""
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # `| head` has read enough.
            print(f"proxyless: {error}", file=sys.stderr)
        _forget_output()
        return 1
    return code


def _forget_output() -> None:
    """What is still to be written would fail again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
