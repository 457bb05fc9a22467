"""View of the demo on a terminal, redrawn with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxyless.base.texts import count
from proxyless.demo.view import MISSED, RUNNING, SEEN, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from rich.console import Console, ConsoleOptions, RenderableType

    from proxyless.demo.view import (
        BackendView,
        GenerationView,
        SessionView,
        StepView,
        TreeRow,
        View,
    )

_STATES: Final = {
    "READY": ("●", "green"),
    "CONNECTING": ("◌", "yellow"),
    "IDLE": ("○", "blue"),
    "TRANSIENT_FAILURE": ("✕", "bold red"),
    "": ("·", "dim"),
}
_STEPS: Final = {
    WAITING: ("·", "dim"),
    RUNNING: ("▸", "bold yellow"),
    SEEN: ("✓", "green"),
    MISSED: ("✕", "bold red"),
}
_ZONES: Final = {"a": "cyan", "b": "magenta", "c": "yellow"}
_SPARKS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 14
_INDENT: Final = "  "
_ARROW: Final = " > "


def bar(share: float, width: int = _BAR_WIDTH) -> str:
    """Bar for a share of the width, with a resolution of an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def sparkline(values: Sequence[float], top: float) -> str:
    """One character for each value, blank only for 0."""
    steps = len(_SPARKS) - 1
    scaled = (min(max(round(value / top * steps), value > 0), steps) for value in values)
    return "".join(_SPARKS[index] for index in scaled)


def render(view: View, page: str = "") -> Layout:
    """The whole screen; `page` is the URL of the web page, if there is one."""
    layout = Layout()
    layout.split_column(Layout(_render_head(view, page), size=1), Layout(name="body"))
    layout["body"].split_row(Layout(name="left", ratio=10), Layout(name="right", ratio=11))
    state = Layout(size=6)
    state.split_row(
        Layout(_panel("session", _render_session(view.session)), ratio=4),
        Layout(_panel("config", _render_generation(view.generation)), ratio=5),
    )
    layout["left"].split_column(
        Layout(_panel("RPCs per second", _Backends(view.backends)), size=8),
        Layout(_panel("story", _render_steps(view.steps)), minimum_size=len(view.steps) + 2),
        state,
    )
    layout["right"].update(_panel("LB tree", render_tree(view.tree)))
    return layout


def _lines(*lines: Text) -> Group:
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim", padding=(0, 1))


def _render_head(view: View, page: str) -> Text:
    text = Text.assemble(
        (" proxyless demo ", "bold reverse"),
        f"  {view.elapsed_s:5.1f} s   {view.rate:.0f} RPCs/s   {view.sent:,} sent   ",
        (f"{view.failed} failed   ", "bold red" if view.failed else "green"),
        (f"{view.lost} lost with their backend", "yellow" if view.lost else "dim"),
        no_wrap=True,
    )
    return text.append("   ").append(page, "underline") if page else text


class _Backends:
    """Lines of all backends. Rendered by rich, which passes the available width."""

    def __init__(self, backends: Sequence[BackendView]) -> None:
        self._backends: Final = backends

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        top = max(1.0, *(rate for backend in self._backends for rate in backend.history))
        for backend in self._backends:
            yield _render_backend(backend, top, options.max_width)


def _render_backend(backend: BackendView, top: float, width: int) -> Text:
    colour = _ZONES[backend.zone] if backend.is_running else "dim"
    priority = "" if backend.priority is None else f"p{backend.priority}"
    rate = f"{backend.rate:.0f}" if backend.is_running else "killed"
    line = Text.assemble(
        (f"zone {backend.zone} ", "dim"),
        (f"{backend.name} ", f"bold {colour}"),
        (f"{priority:3}", "dim"),
        (f"{bar(backend.rate / top):{_BAR_WIDTH}}", colour),
        (f"{rate:>7} ", "" if backend.rate else "dim"),
        no_wrap=True,
        overflow="crop",
    )
    columns = min(max(width - len(line), 0), len(backend.history))
    history = backend.history[len(backend.history) - columns :]
    return line.append(sparkline(history, top), colour)


def _render_steps(steps: Sequence[StepView]) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, min_width=1)
    table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    table.add_column(no_wrap=True, min_width=len("at once"))
    for step in steps:
        sign, style = _STEPS[step.state]
        note = step.note if step.state != MISSED else ""
        table.add_row(
            Text(sign, style=style), Text(step.title, style=style), Text(note, style="dim")
        )
        if step.state in (RUNNING, MISSED):
            table.add_row("", Text(step.expected, style="italic"), "")
        if step.state == MISSED:
            table.add_row("", Text(step.note, style="red"), "")
    return table


def _render_session(session: SessionView) -> Group:
    return _lines(
        Text.assemble("on ", (session.backend or "no backend yet", "bold")),
        Text(session.address, style="dim"),
        Text(f"{count(session.rpcs, 'RPC')}, {count(session.moves, 'move')}"),
        Text(f"there for {session.there_s:.1f} s", style="dim"),
    )


def _render_generation(generation: GenerationView) -> Group:
    is_served = generation.is_served
    held = Text()
    for each in generation.held:
        held.append(f"{each.type} ", "dim").append(f"{each.version or '-'} ", "bold")
    missing = [name for each in generation.held for name in each.missing]
    waits = Text(f"waits for {', '.join(missing)}", "yellow") if missing else Text("complete")
    return _lines(
        Text.assemble("served ", (generation.served, "bold"))
        if is_served
        else Text("control plane is away", style="bold red"),
        held,
        waits,
        Text.assemble(("RPCs on ", "dim"), generation.cluster),
    )


def render_tree(rows: Sequence[TreeRow]) -> Table:
    """An LB tree, one line per row."""
    widths = (len(_INDENT) * row.depth + len("● ") + len(row.label) for row in rows)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, min_width=max(widths, default=0))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        # The tree of another process may have other states.
        sign, style = _STATES.get(row.state, _STATES[""])
        label = Text(_INDENT * row.depth).append(f"{sign} ", style)
        label.append(row.label, "bold" if row.is_active else "dim")
        is_failing = row.state == "TRANSIENT_FAILURE"
        notes = Text.assemble((row.note, "red" if is_failing else ""), "  " if row.note else "")
        notes.append(_ARROW.join(row.policies), "dim")
        table.add_row(label, notes)
    return table


class TerminalView:
    """Screen that is redrawn for each view. Its exit restores the terminal."""

    def __init__(self, console: Console, page: str = "") -> None:
        self._page: Final = page
        self._live: Final = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        self._live.update(render(view, self._page), refresh=True)
