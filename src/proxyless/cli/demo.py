"""`proxyless demo`: runs a mesh on this machine and breaks it step by step.

A control plane, six backends in three zones and a client under load; zones are killed and started
again, routes change, the control plane restarts. The exit code is 0 if the final verdict is good.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from proxyless.cli.arguments import parse_number, parse_port, refuse_options
from proxyless.cli.output import (
    JSON,
    add_output_option,
    check_rich,
    fail,
    is_screen,
    print_json,
    print_lines,
    print_table,
    uses_color,
)
from proxyless.cli.signals import call_on_termination
from proxyless.demo.mesh import PLACES
from proxyless.demo.plain_log import PlainLog
from proxyless.demo.play import run_demo
from proxyless.demo.stage import Settings
from proxyless.demo.verdict import to_json
from proxyless.demo.web import Page
from proxyless.resolver.http_proxy import PROXY_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.demo.play import Viewer
    from proxyless.demo.verdict import Verdict

SPEED_MAX: Final = 10.0
# The story begins after this time even if no browser has opened the page.
VISITOR_WAIT_S: Final = 60.0

EXIT_CODES: Final = {
    0: "the verdict is good",
    1: "it is bad, or the demo was stopped before it",
    2: "usage error, or a missing extra",
}

_STYLES: Final = {"good": "green", "bad": "bold red"}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a control plane, backends in three zones and a client on loopback; "
        "break them in turn, and check that RPCs do not fail."
    )
    parser.add_argument("--web", action="store_true", help="also show a web page, until Ctrl-C")
    parser.add_argument(
        "--port",
        type=parse_port,
        default=0,
        help="port of the page (default: %(default)s, any free port)",
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="FACTOR",
        help="divide the time of each step by this factor (default: %(default)g)",
    )
    parser.add_argument("--plain", action="store_true", help="print a log, even on a terminal")
    parser.add_argument(
        "--bad-backend",
        metavar="NAME",
        choices=[place.name for place in PLACES],
        default="",
        help="backend that answers with errors, for a bad verdict (a1 to c2)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def _speed(text: str) -> float:
    speed = parse_number(text)
    if not 0 < speed <= SPEED_MAX:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted more than 0, at most {SPEED_MAX:g}")
    return speed


def run(parsed: argparse.Namespace) -> int:
    """Run the demo; returns 0 if the verdict is good, 1 if it is bad or missing."""
    if not parsed.web:
        refuse_options(parsed, ["port"], "without --web")
    check_rich(parsed)
    # The demo shows all failures itself.
    logging.getLogger("proxyless").addHandler(logging.NullHandler())
    # Connections on loopback must not go through an HTTP proxy.
    os.environ[PROXY_VARIABLES[0]] = ""
    verdict: Verdict | None = None
    problems: Sequence[object] = ["stopped before the verdict"]
    has_reader = True
    try:
        verdict = asyncio.run(_Demo(parsed).run())
    except* BrokenPipeError:  # `| head` closes the pipe early.
        has_reader = False
    except* OSError as group:
        problems = group.exceptions
    if not has_reader:
        raise BrokenPipeError
    if verdict is None:
        return fail("demo", problems)
    return 0 if verdict.is_good else 1


class _Demo:
    """One run of the command. Signals cancel it."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed: Final = parsed
        # With JSON, standard output has nothing else.
        self._out: Final = sys.stderr if parsed.output == JSON else sys.stdout
        self._verdict: Verdict | None = None

    async def run(self) -> Verdict | None:
        """The verdict; None if a signal arrived before it."""
        task = asyncio.ensure_future(self._play_and_report())
        call_on_termination(asyncio.get_running_loop(), task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return self._verdict

    async def _play_and_report(self) -> None:
        async with AsyncExitStack() as exits:
            page = None
            if self._parsed.web:
                page = await exits.enter_async_context(Page(self._parsed.port))
            verdict = await self._play(page)
            self._report(verdict)
            self._verdict = verdict
            if page is not None:
                self._print(f"\nthe page stays at {page.address} until Ctrl-C")
                await asyncio.Event().wait()

    async def _play(self, page: Page | None) -> Verdict:
        settings = Settings(self._parsed.speed, self._parsed.bad_backend)
        viewers: list[Viewer] = [page] if page is not None else []
        address = page.address if page is not None else ""
        if page is not None:
            self._print(f"the page is at {address} and the story begins when it is open")
            await page.wait_for_visitor(VISITOR_WAIT_S)
        if not self._parsed.plain and is_screen(self._out):
            # rich is in the extra proxyless[cli].
            from rich.console import Console  # noqa: PLC0415

            from proxyless.demo.terminal import TerminalView  # noqa: PLC0415

            console = Console(file=self._out, highlight=False, no_color=not uses_color(self._out))
            with TerminalView(console, address) as terminal:
                return await run_demo(settings, [*viewers, terminal])
        return await run_demo(settings, [*viewers, PlainLog(self._print)])

    def _report(self, verdict: Verdict) -> None:
        if self._parsed.output == JSON:
            print_json(to_json(verdict))
            return
        rows = [("good" if row.is_good else "bad", row.name, row.value) for row in verdict.rows]
        self._print("")
        print_table(("", "what", "verdict"), rows, styles=_STYLES)

    def _print(self, line: str) -> None:
        print_lines(line, self._out)
