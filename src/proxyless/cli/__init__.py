"""The command line `proxyless`, with one module per command.

demo, explain, lint, serve, simulate, status   the commands, see `COMMANDS`

arguments       argument types that several commands use
output          tables, JSON, lines and errors
resource_files  reading of resources from files, for `explain`, `lint` and `simulate`
signals         call on Ctrl-C and SIGTERM

Each command's module has `fill_parser`, which declares its arguments, and `run`, which returns the
exit code: 0 for success, 1 for failure, 2 for a usage error or a missing extra. Only the module of
the given command is imported.
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

# Help texts, in the order of `proxyless --help`.
COMMANDS: Final = {
    "demo": "run a mesh on this machine that fails over under load",
    "serve": "serve xDS from a directory of YAML and JSON files",
    "lint": "report what clients reject, ignore or interpret differently in xDS resources",
    "explain": "explain how an RPC is routed, from files or a running process",
    "simulate": "run the mesh described by files in virtual time, with faults",
    "status": "show the resources that the xDS clients of a process hold",
}
# Packages of the extra `cli`; the other dependencies are always installed.
_EXTRA: Final = {"rich": "rich", "yaml": "PyYAML"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own unless given; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # Inside the try statement: importing a command takes long enough for a Ctrl-C.
        parsed, unknown = _make_parser(given).parse_known_args(given)
        if unknown:
            # The command's own parser shows the usage of the command.
            parsed.parser.error(f"unrecognized arguments: {_one_line(' '.join(unknown))}")
        _prepare_output()
        return _run(parsed)
    except KeyboardInterrupt:
        print("proxyless: interrupted", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        package = _EXTRA.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        wanted = "pip install 'proxyless[cli]'"
        print(f"proxyless: {package} is not installed, wanted: {wanted}", file=sys.stderr)
        return 2


def _make_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Parser with the arguments of the given command, and only the help text of the others."""
    parser = argparse.ArgumentParser(
        prog="proxyless", description="gRPC's xDS client stack in pure Python."
    )
    parser.add_argument("--version", action="version", version=f"proxyless {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((each for each in given if each in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        command.set_defaults(parser=command)
        if name == named:
            import_module(f"{__name__}.{name}").fill_parser(command)
    return parser


def _prepare_output() -> None:
    """Let standard output accept any text."""
    if sys.stdout is None:  # The parent process closed it.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may not be UTF-8, and the terminal may be ASCII only.
        sys.stdout.reconfigure(errors="backslashreplace")


def _one_line(text: str) -> str:
    # Imported for errors only: `--help` loads no other package.
    from proxyless.base.texts import one_line  # noqa: PLC0415

    return one_line(text)


def _run(parsed: argparse.Namespace) -> int:
    """Run the command; returns its exit code, or 1 if its output cannot be written."""
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # `| head` closes the pipe early.
            print(f"proxyless: {_one_line(str(error))}", file=sys.stderr)
        # Buffered output would fail again when the interpreter exits.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return 1
    return code
