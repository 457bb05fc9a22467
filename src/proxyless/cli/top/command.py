"""Arguments and runs of `proxyless top`: on a terminal, as lines, once, or as a page."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

from proxyless.base.texts import escape_json
from proxyless.cli.arguments import parse_address, parse_port, parse_timeout, refuse_options
from proxyless.cli.output import (
    JSON,
    add_output_option,
    check_rich,
    fail,
    is_screen,
    note,
    print_json,
    print_lines,
    print_table,
    uses_color,
)
from proxyless.cli.signals import call_on_termination
from proxyless.cli.top.navigation import QUIT, Navigation, press
from proxyless.cli.top.samples import to_json, with_rates
from proxyless.cli.top.sources import ProcessSource, SourceError
from proxyless.cli.top.tables import tabulate_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxyless.cli.top.samples import Sample

INTERVAL_S: Final = 1.0
INTERVAL_MIN_S: Final = 0.1

EXIT_CODES: Final = {
    0: "ended by q, Ctrl-C or --once",
    1: "the process does not answer",
    2: "usage error, or a missing extra",
}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Watch the channels of the process at ADDR: clusters, endpoints, RPCs per second, errors "
        "and ejections. Without the live service of proxyless.admin, as in a process with grpcio's "
        "channels, its CSDS is read, which has clusters and endpoints only."
    )
    parser.add_argument(
        "address",
        metavar="ADDR",
        type=parse_address,
        help="admin address of the process: host:port or unix:path",
    )
    parser.add_argument("--target", default="", help="only channels with this target")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=_parse_interval,
        default=INTERVAL_S,
        help=f"time between two samples, such as 500ms (default: {INTERVAL_S:g}s)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print the rates of one interval, and exit"
    )
    parser.add_argument("--web", action="store_true", help="show a web page, until Ctrl-C")
    parser.add_argument(
        "--port",
        type=parse_port,
        default=0,
        help="port of the page (default: %(default)s, any free port)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def _parse_interval(text: str) -> float:
    seconds = parse_timeout(text)
    if seconds < INTERVAL_MIN_S:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted at least {INTERVAL_MIN_S:g}s")
    return seconds


def run(parsed: argparse.Namespace) -> int:
    """Show samples; returns 1 if the process does not answer at the beginning."""
    if parsed.web:
        refuse_options(parsed, ["once", "output", "color"], "with --web")
    else:
        refuse_options(parsed, ["port"], "without --web")
        check_rich(parsed)
    try:
        return asyncio.run(_Run(parsed).run())
    except SourceError as error:
        return fail("top", error.args)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return fail("top", [error])


class _Run:
    """One run of the command."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed: Final = parsed
        self._source: Final = ProcessSource(parsed.address, parsed.interval, parsed.target)
        self._sample: Sample | None = None
        # The reason why there is no newer sample.
        self._problem = ""
        self._navigation = Navigation()
        # Printed again when they change.
        self._printed_notes: tuple[str, ...] = ()

    async def run(self) -> int:
        """Show samples until a signal, a key or `--once` ends it. Raises SourceError."""
        if self._parsed.web:
            show = self._show_page
        elif self._parsed.once:
            show = self._show_once
        elif self._parsed.output != JSON and is_screen(sys.stdout):
            show = self._show_screen
        else:
            show = self._show_lines
        task = asyncio.ensure_future(show())
        call_on_termination(asyncio.get_running_loop(), task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return 0

    async def _follow(self, on_change: Callable[[], None]) -> None:
        """Take samples until cancelled. Raises SourceError if there is not even one."""
        while True:
            try:
                async for sample in self._source.samples():
                    if not self._navigation.is_paused:
                        self._sample, self._problem = with_rates(self._sample, sample), ""
                        on_change()
            except SourceError as error:
                if self._sample is None:
                    raise
                self._problem = f"no answer, trying again: {error}"
                on_change()
            await self._source.pause()

    async def _show_once(self) -> None:
        first: Sample | None = None
        async for sample in self._source.samples():
            if first is None and any(each.traffic.started is not None for each in sample.channels):
                first = sample
                continue
            self._print(with_rates(first, sample))
            return

    async def _show_lines(self) -> None:
        await self._follow(self._print_newest)

    def _print_newest(self) -> None:
        assert self._sample is not None, "called for a sample"
        if self._problem:
            note("top", self._problem)
        else:
            self._print(self._sample)

    def _print(self, sample: Sample) -> None:
        if self._parsed.output == JSON:
            document = to_json(sample)
            if self._parsed.once:
                print_json(document)
            else:
                # One document per line.
                print(escape_json(json.dumps(document, ensure_ascii=False)), flush=True)
            return
        table = tabulate_all(sample)
        if table.rows:
            rows = [[(cell.text, cell.style) for cell in row.cells] for row in table.rows]
            print_table(table.columns, rows)
        else:
            print_lines("no channel is there")
        if not self._parsed.once:
            print_lines("")
        if sample.notes != self._printed_notes:
            self._printed_notes = sample.notes
            for each in sample.notes:
                note("top", each)

    async def _show_screen(self) -> None:
        # rich is in the extra proxyless[cli].
        from rich.console import Console  # noqa: PLC0415

        from proxyless.cli.top.keyboard import Keyboard  # noqa: PLC0415
        from proxyless.cli.top.screen import TopScreen  # noqa: PLC0415

        is_over = asyncio.Event()
        console = Console(highlight=False, no_color=not uses_color(sys.stdout))

        def draw() -> None:
            if self._sample is not None:
                screen.show(self._sample, self._navigation, self._problem)

        def on_key(key: str) -> None:
            if key == QUIT:
                is_over.set()
            elif self._sample is not None:
                self._navigation = press(self._navigation, key, self._sample)
                draw()

        with TopScreen(console, self._parsed.address) as screen, Keyboard(on_key):
            await _first_of(self._follow(draw), is_over.wait())

    async def _show_page(self) -> None:
        # The server of the demo.
        from proxyless.cli.top.page_view import PageHistory  # noqa: PLC0415
        from proxyless.demo.web import Page  # noqa: PLC0415

        history = PageHistory(self._parsed.address)
        async with Page(self._parsed.port) as page:

            def show() -> None:
                if self._sample is not None:
                    page.show(history.view(self._sample, self._problem))

            print_lines(f"the page is at {page.address} until Ctrl-C")
            await self._follow(show)


async def _first_of(*works: Awaitable[object]) -> None:
    """Wait for the first of these to end, and cancel the others. Raises what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
