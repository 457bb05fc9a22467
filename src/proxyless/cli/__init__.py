"""The command line `proxyless`, with one module per command.

call, completion, demo, diff, expand, explain, init, lint, replay, serve, simulate, status, top
                 the commands, see `COMMANDS`

arguments        argument types that several commands use
output           tables, JSON, lines and errors
progress         progress on standard error
resource_files   reading of resources from files
file_positions   lines and columns of findings in files, for `lint`
lint_formats     formats of findings for other programs, for `lint`
signals          call on Ctrl-C and SIGTERM
serving         run of `serve`
admin_client     client of the admin services of a process: CSDS and the live service
dialing          channels of commands that connect to a mesh
explain_process  explanations of running processes, for `explain`
message_schemas  requests and responses in JSON, for `call`
reflection       client of server reflection, for `call`

Each command's module has `fill_parser`, which declares its arguments, `run`, which returns the exit
code, and `EXIT_CODES`, the codes with their meanings for `--help`: 0 for success, 1 for failure, 2
for a usage error or a missing extra. Only the module of the given command is imported.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import textwrap
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main"]

# Help texts, in the order of `proxyless --help`.
COMMANDS: Final = {
    "demo": "run a mesh on this machine that fails over under load",
    "serve": "serve xDS from a directory of YAML and JSON files",
    "init": "make a mesh, a bootstrap and a client to start from",
    "expand": "print the xDS resources of files in the short form",
    "lint": "report what clients reject, ignore or interpret differently in xDS resources",
    "diff": "show what a change of a mesh means for RPCs",
    "explain": "explain how an RPC is routed, from files or a running process",
    "call": "send one RPC through the mesh, and explain where it went",
    "simulate": "run the mesh described by files in virtual time, with faults",
    "replay": "show a flight recording, and compare it with a re-run in virtual time",
    "top": "watch the channels, clusters and endpoints of a process",
    "status": "show the resources that the xDS clients of a process hold",
    "completion": "print a script that completes commands and options in a shell",
}
# Exit codes of a command whose module has no `EXIT_CODES`.
EXIT_CODES: Final = {
    0: "success",
    1: "failure",
    2: "usage error, or a missing extra",
}
# Packages of the extra `cli`; the other dependencies are always installed.
_EXTRA: Final = {"rich": "rich", "yaml": "PyYAML"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own unless given; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # Before the arguments are parsed: help texts are not ASCII.
    _prepare_output()
    try:
        # Inside the try statement: importing a command takes long enough for a Ctrl-C.
        parser = _make_parser(given)
        if not given:
            parser.print_help(sys.stderr)
            parser.exit(2)
        parsed, unknown = parser.parse_known_args(given)
        if unknown:
            # The command's own parser shows the usage of the command.
            parsed.parser.error(f"unrecognized arguments: {_one_line(' '.join(unknown))}")
        _apply_color(parsed)
        return _run(parsed)
    except KeyboardInterrupt:
        print("proxyless: interrupted", file=sys.stderr)
        return _end_by_interrupt()
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
        prog="proxyless",
        description="gRPC's xDS client stack in pure Python.",
        epilog="proxyless COMMAND --help lists the options and exit codes of a command.",
    )
    parser.add_argument("--version", action="version", version=f"proxyless {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((each for each in given if each in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        command.set_defaults(parser=command)
        if name == named:
            module = import_module(f"{__name__}.{name}")
            module.fill_parser(command)
            # The epilog has lines of its own, so argparse must not fill texts.
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            width = shutil.get_terminal_size().columns - 2
            command.description = textwrap.fill(command.description or summary, width)
            command.epilog = _describe_exit_codes(getattr(module, "EXIT_CODES", EXIT_CODES))
    return parser


def _describe_exit_codes(codes: Mapping[int | str, str]) -> str:
    width = max(len(str(code)) for code in codes)
    return "\n".join(
        ["exit codes:", *(f"  {code!s:{width}}  {meaning}" for code, meaning in codes.items())]
    )


def _apply_color(parsed: argparse.Namespace) -> None:
    if "color" in parsed:
        # Not imported for `--help`.
        from proxyless.cli.output import apply_color  # noqa: PLC0415

        apply_color(parsed.color, os.environ)


def _prepare_output() -> None:
    """Let standard output and standard error accept any text."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # The parent process closed it.
            null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, null)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may not be UTF-8, and the terminal may be ASCII only.
        sys.stdout.reconfigure(errors="backslashreplace")


def _end_by_interrupt() -> int:
    """End the process by SIGINT: otherwise a shell would continue the loop around the command."""
    import signal  # noqa: PLC0415 - not imported for `--help`

    with suppress(OSError):
        sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    return 1  # Not reached, unless the signal is blocked.


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
