"""Plots of results as SVG: lines over a logarithmic scale. Pure, and without a library for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 50
FONT: Final = "font-family='sans-serif' font-size='12'"
# Readable with the usual kinds of colour blindness (Okabe and Ito).
COLOURS: Final = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
# Lines whose labels would overlap are labelled at this distance.
LABEL_STEP: Final = 15


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines by name: from a size to a value; both are positive."""

    title: str
    x_text: str
    y_text: str
    lines: Mapping[str, Mapping[float, float]]


class Scale:
    """Logarithmic scale from values to pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low = log10(min(values))
        self._high = log10(max(values))
        if self._high == self._low:
            self._low, self._high = self._low - 0.5, self._high + 0.5
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (log10(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between the two, and one beyond each."""
    steps = [
        base * 10.0**power
        for power in range(floor(log10(low)) - 1, ceil(log10(high)) + 1)
        for base in (1, 2, 5)
    ]
    inside = [each for each in steps if low <= each <= high]
    below = max((each for each in steps if each < low), default=low)
    above = min((each for each in steps if each > high), default=high)
    return [below, *inside, above]


def format_svg(plot: Plot) -> str:
    xs = sorted({x for line in plot.lines.values() for x in line})
    values = [y for line in plot.lines.values() for y in line.values()]
    y_ticks = ticks(min(values), max(values))
    x_scale = Scale(xs, LEFT + 10, WIDTH - RIGHT - 10)
    y_scale = Scale(y_ticks, HEIGHT - BOTTOM, TOP)
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}'"
            f" width='{WIDTH}' height='{HEIGHT}' {FONT}>"
        ),
        f"<title>{escape(plot.title)}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
        f"<text x='{LEFT}' y='22' font-size='14' font-weight='bold'>{escape(plot.title)}</text>",
        *_axes(plot, xs, y_ticks, x_scale, y_scale),
        *_lines(plot, x_scale, y_scale),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(
    plot: Plot, xs: Sequence[float], y_ticks: Sequence[float], x_scale: Scale, y_scale: Scale
) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in y_ticks:
        y = y_scale.at(tick)
        parts.append(f"<line x1='{LEFT}' y1='{y}' x2='{right}' y2='{y}' stroke='#dddddd'/>")
        parts.append(f"<text x='{LEFT - 6}' y='{y + 4}' text-anchor='end'>{tick:,g}</text>")
    for x in xs:
        at = x_scale.at(x)
        parts.append(f"<line x1='{at}' y1='{bottom}' x2='{at}' y2='{bottom + 5}' stroke='#000'/>")
        parts.append(f"<text x='{at}' y='{bottom + 19}' text-anchor='middle'>{x:,g}</text>")
    middle = (LEFT + right) / 2
    parts.append(f"<line x1='{LEFT}' y1='{bottom}' x2='{right}' y2='{bottom}' stroke='#000'/>")
    parts.append(
        f"<text x='{middle}' y='{HEIGHT - 10}' text-anchor='middle'>{escape(plot.x_text)}</text>"
    )
    y_middle = (TOP + bottom) / 2
    parts.append(
        f"<text x='16' y='{y_middle}' text-anchor='middle'"
        f" transform='rotate(-90 16 {y_middle})'>{escape(plot.y_text)}</text>"
    )
    return parts


def _lines(plot: Plot, x_scale: Scale, y_scale: Scale) -> list[str]:
    parts = []
    # From the top, so that labels that overlap move down.
    ends = sorted(plot.lines.items(), key=lambda item: -item[1][max(item[1])])
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(plot.lines)}
    label_y = 0.0
    for name, line in ends:
        points = [(x_scale.at(x), y_scale.at(y)) for x, y in sorted(line.items())]
        shown = " ".join(f"{x},{y}" for x, y in points)
        colour = colours[name]
        parts.append(f"<polyline points='{shown}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts += [f"<circle cx='{x}' cy='{y}' r='3' fill='{colour}'/>" for x, y in points]
        label_y = max(points[-1][1] + 4, label_y + LABEL_STEP)
        parts.append(
            f"<text x='{points[-1][0] + 10}' y='{label_y}' fill='{colour}'>{escape(name)}</text>"
        )
    return parts
