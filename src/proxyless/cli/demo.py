"""`proxyless demo`: a mesh on this machine, and a bad day in its life.

A control plane, six backends in three zones and a client under load; zones die and come back,
routes change, the control plane restarts. At the end is a verdict, and the exit code says the same.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from rich.console import Console

from proxyless.cli.arguments import parse_number, parse_port
from proxyless.cli.output import JSON, add_output_option, print_json, print_table
from proxyless.demo.mesh import PLACES
from proxyless.demo.play import run_demo
from proxyless.demo.stage import Settings
from proxyless.demo.terminal import PlainLog, TerminalView
from proxyless.demo.verdict import to_json
from proxyless.demo.web import Page
from proxyless.resolver.http_proxy import PROXY_VARIABLES

if TYPE_CHECKING:
    from proxyless.demo.play import Viewer
    from proxyless.demo.verdict import Verdict

SPEED_MAX: Final = 10.0
# Without anybody who opens the page the story begins after this time.
VISITOR_PATIENCE_S: Final = 60.0

_STYLES: Final = {"good": "green", "bad": "bold red"}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.description = (
        "Run a control plane, backends in three zones and a client on loopback; "
        "break them in turn, and judge what RPCs noticed of it."
    )
    parser.add_argument("--web", action="store_true", help="show it as a page, too, until Ctrl-C")
    parser.add_argument(
        "--port",
        type=parse_port,
        default=0,
        help="of the page (default: %(default)s, any free one)",
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="FACTOR",
        help="show each step for so much less time (default: %(default)g)",
    )
    parser.add_argument("--plain", action="store_true", help="a log, even on a terminal")
    parser.add_argument(
        "--bad-backend",
        metavar="NAME",
        choices=[place.name for place in PLACES],
        default="",
        help="let this one answer with errors, to see a bad verdict (a1 to c2)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def _speed(text: str) -> float:
    speed = parse_number(text)
    if not 0 < speed <= SPEED_MAX:
        raise argparse.ArgumentTypeError(f"got {text}, wanted more than 0, at most {SPEED_MAX:g}")
    return speed


def run(parsed: argparse.Namespace) -> int:
    """Play it; 0 if the verdict is good, 1 if it is not or there is none."""
    # The stack says when it is in trouble. Here that is the point, and it is shown better.
    logging.getLogger("proxyless").addHandler(logging.NullHandler())
    # All of it is on this machine, whatever proxy leads out of it.
    os.environ[PROXY_VARIABLES[0]] = ""
    verdict: Verdict | None = None
    has_reader = True
    try:
        verdict = asyncio.run(_Demo(parsed).run())
    except* BrokenPipeError:  # `| head` has read enough.
        has_reader = False
    except* OSError as group:
        for error in group.exceptions:
            print(f"proxyless demo: {error}", file=sys.stderr)
    if not has_reader:
        raise BrokenPipeError
    if verdict is None:
        print("proxyless demo: stopped before the verdict", file=sys.stderr)
        return 1
    return verdict.exit_code


class _Demo:
    """One run of the command. Driven by signals and by the story."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed: Final = parsed
        # For people; what is asked for as JSON is the only thing on standard output.
        self._out: Final = sys.stderr if parsed.output == JSON else sys.stdout
        self._verdict: Verdict | None = None

    async def run(self) -> Verdict | None:
        """None if a signal came before the verdict."""
        task = asyncio.ensure_future(self._play_and_tell())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return self._verdict

    async def _play_and_tell(self) -> None:
        async with AsyncExitStack() as exits:
            page = None
            if self._parsed.web:
                page = await exits.enter_async_context(Page(self._parsed.port))
            verdict = await self._play(page)
            self._tell(verdict)
            self._verdict = verdict
            if page is not None:
                self._say(f"\nthe page stays at {page.address} until Ctrl-C")
                await asyncio.Event().wait()

    async def _play(self, page: Page | None) -> Verdict:
        settings = Settings(self._parsed.speed, self._parsed.bad_backend)
        viewers: list[Viewer] = [page] if page is not None else []
        address = page.address if page is not None else ""
        if page is not None:
            self._say(f"the page is at {address} and the story begins when it is open")
            await page.wait_for_visitor(VISITOR_PATIENCE_S)
        console = Console(file=self._out, highlight=False)
        if self._parsed.plain or not console.is_terminal:
            return await run_demo(settings, [*viewers, PlainLog(self._say)])
        with TerminalView(console, address) as terminal:
            return await run_demo(settings, [*viewers, terminal])

    def _tell(self, verdict: Verdict) -> None:
        if self._parsed.output == JSON:
            print_json(to_json(verdict))
            return
        rows = [("good" if row.is_good else "bad", row.name, row.value) for row in verdict.rows]
        self._say("")
        print_table(("", "what", "verdict"), rows, styles=_STYLES)

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)
