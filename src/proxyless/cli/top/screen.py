"""Screen of `proxyless top`: a table with a selected row, events and keys, drawn with rich."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxyless.cli.top.navigation import (
    HELP,
    choose_table,
    describe_selected,
    find_channel,
    find_selected,
    order_rows,
)
from proxyless.cli.top.tables import show_rate
from proxyless.demo.terminal import render_tree
from proxyless.demo.view import view_tree

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console, RenderableType

    from proxyless.cli.top.navigation import Navigation
    from proxyless.cli.top.samples import ChannelRow, Sample
    from proxyless.cli.top.tables import SampleTable

EVENTS_SHOWN: Final = 5
DETAIL_LINES: Final = 3
# Lines of the screen that are not rows: head, border and titles of the table, footer.
_OTHER_LINES: Final = 5

_LEFT_COLUMNS: Final = frozenset(
    {"target", "cluster", "endpoint", "state", "problem", "locality", "note", "priority"}
)


def render(
    sample: Sample, navigation: Navigation, address: str, problem: str, height: int
) -> Layout:
    """The whole screen, for a terminal of this height."""
    layout = Layout()
    body = Layout(_render_body(sample, navigation, height), name="body")
    parts = [Layout(_render_head(sample, address), size=1), body]
    if details := describe_selected(sample, navigation):
        parts.append(Layout(_panel("selected", Text(details)), size=DETAIL_LINES + 2))
    if sample.events:
        size = min(len(sample.events), EVENTS_SHOWN) + 2
        parts.append(Layout(_panel("events", _render_events(sample)), size=size))
    parts.append(Layout(_render_foot(sample, navigation, problem), size=1))
    layout.split_column(*parts)
    return layout


def _render_head(sample: Sample, address: str) -> Text:
    traffic = sample.traffic
    rate, failures = show_rate(traffic.rate), show_rate(traffic.failure_rate)
    return Text.assemble(
        (" proxyless top ", "bold reverse"),
        f"  {address}  ",
        (f"{sample.process}  ", "dim"),
        f"{rate.text} RPCs/s  ",
        (f"{failures.text} failures/s", "bold red" if traffic.failure_rate else "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _render_body(sample: Sample, navigation: Navigation, height: int) -> RenderableType:
    channel = find_channel(sample, navigation)
    if navigation.shows_tree and channel is not None:
        return _panel(f"LB tree of {channel.target}", _render_tree(channel))
    table = choose_table(sample, navigation)
    events = min(len(sample.events), EVENTS_SHOWN) + 2 if sample.events else 0
    details = DETAIL_LINES + 2 if describe_selected(sample, navigation) else 0
    visible = max(1, height - _OTHER_LINES - events - details)
    return _panel(table.title, render_table(table, navigation, visible))


def _render_tree(channel: ChannelRow) -> RenderableType:
    if channel.lb_tree is None:
        return Text("the channel has no LB tree: it is idle, or the process has no live service")
    return render_tree(view_tree(channel.lb_tree, {}))


def render_table(table: SampleTable, navigation: Navigation, visible: int) -> Table:
    """A table with at most `visible` rows, around the selected one."""
    rows = order_rows(table, navigation)
    selected = find_selected(rows, navigation)
    first = min(max(0, selected - visible // 2), max(0, len(rows) - visible))
    grid = Table.grid(padding=(0, 2), expand=True)
    for column in table.columns:
        is_last = column == table.columns[-1]
        grid.add_column(
            justify="left" if column in _LEFT_COLUMNS else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_last else None,
        )
    arrow = "▲" if navigation.is_reversed else "▼"
    # In front, where a narrow column does not cut it off.
    titles = (f"{arrow} {each}" if each == navigation.sort else each for each in table.columns)
    grid.add_row(*(Text(title.upper(), style="dim") for title in titles))
    for index, row in enumerate(rows[first : first + visible], start=first):
        style = "reverse" if index == selected else ""
        grid.add_row(*(Text(cell.text, style=cell.style) for cell in row.cells), style=style)
    return grid


def _render_events(sample: Sample) -> Group:
    lines = []
    for event in sample.events[-EVENTS_SHOWN:]:
        clock = datetime.fromtimestamp(event.time_s, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = Text.assemble((f"{clock}Z ", "dim"), event.text, no_wrap=True, overflow="ellipsis")
        lines.append(line)
    return Group(*lines)


def _render_foot(sample: Sample, navigation: Navigation, problem: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    if problem:
        line.append(f"{problem}  ", "bold red")
    if navigation.is_paused:
        line.append("paused  ", "bold yellow")
    for note in sample.notes:
        line.append(f"{note}  ", "yellow")
    return line.append(HELP, "dim")


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=Text(title), title_align="left", border_style="dim", padding=(0, 1))


class TopScreen:
    """Screen that is redrawn for each sample and key. Its exit restores the terminal."""

    def __init__(self, console: Console, address: str) -> None:
        self._console: Final = console
        self._address: Final = address
        self._live: Final = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, sample: Sample, navigation: Navigation, problem: str) -> None:
        height = self._console.size.height
        screen = render(sample, navigation, self._address, problem, height)
        self._live.update(screen, refresh=True)
