"""Navigation: the table that is shown, the selected row and the order, changed by keys (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.cli.top.tables import tabulate_channels, tabulate_clusters, tabulate_endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.cli.top.samples import ChannelRow, Sample
    from proxyless.cli.top.tables import SampleTable, TableRow

UP, DOWN, ENTER, BACK, QUIT = "up", "down", "enter", "back", "quit"
# Names of keys by the bytes that terminals send.
KEYS: Final[Mapping[bytes, str]] = {
    b"\x1b[A": UP,
    b"\x1bOA": UP,
    b"k": UP,
    b"\x1b[B": DOWN,
    b"\x1bOB": DOWN,
    b"j": DOWN,
    b"\r": ENTER,
    b"\n": ENTER,
    b"\x1b[C": ENTER,
    b"\x1bOC": ENTER,
    b"l": ENTER,
    b"\x1b": BACK,
    b"\x7f": BACK,
    b"\x08": BACK,
    b"\x1b[D": BACK,
    b"\x1bOD": BACK,
    b"h": BACK,
    b"s": "sort",
    b"r": "reverse",
    b"t": "tree",
    b" ": "pause",
    b"q": QUIT,
    b"\x03": QUIT,
    b"\x04": QUIT,
}
HELP: Final = "↑↓ select  ⏎ open  ← back  s sort  r reverse  t LB tree  space pause  q quit"

_LONGEST: Final = max(map(len, KEYS))


@frozen
class Navigation:
    """The place in the tables. Empty names mean that nothing is opened there."""

    # Key of the opened channel, and of its opened cluster; None if no cluster is opened.
    channel: str = ""
    cluster: str | None = None
    selected: str = ""
    # Column of the order; empty for the order of the sample.
    sort: str = ""
    is_reversed: bool = False
    shows_tree: bool = False
    is_paused: bool = False


def split_keys(typed: bytes) -> list[str]:
    """The names of the keys in bytes of a terminal. Others are left out."""
    names: list[str] = []
    while typed:
        for length in range(_LONGEST, 0, -1):
            if (name := KEYS.get(typed[:length])) is not None:
                names.append(name)
                typed = typed[length:]
                break
        else:
            typed = typed[1:]
    return names


def find_channel(sample: Sample, navigation: Navigation) -> ChannelRow | None:
    """The opened channel; None if there is none, or if it is gone."""
    return next((each for each in sample.channels if each.key == navigation.channel), None)


def choose_table(sample: Sample, navigation: Navigation) -> SampleTable:
    """The table of the place, or of the nearest one above that is still there."""
    channel = find_channel(sample, navigation)
    if channel is None:
        return tabulate_channels(sample)
    for cluster in channel.clusters:
        if navigation.cluster is not None and cluster.name == navigation.cluster:
            return tabulate_endpoints(cluster)
    return tabulate_clusters(channel)


def order_rows(table: SampleTable, navigation: Navigation) -> tuple[TableRow, ...]:
    return table.sorted_by(navigation.sort, is_reversed=navigation.is_reversed)


def find_selected(rows: tuple[TableRow, ...], navigation: Navigation) -> int:
    """Index of the selected row; the first one if it is gone."""
    keys = [row.key for row in rows]
    return keys.index(navigation.selected) if navigation.selected in keys else 0


def describe_selected(sample: Sample, navigation: Navigation) -> str:
    """What the table has no space for: failures of the channel, or the last cell in full."""
    table = choose_table(sample, navigation)
    rows = order_rows(table, navigation)
    if not rows:
        return ""
    selected = rows[find_selected(rows, navigation)]
    parts = [selected.cells[-1].text]
    if find_channel(sample, navigation) is None:
        channel = next(each for each in sample.channels if each.key == selected.key)
        last = f"last failure: {channel.last_failure}" if channel.last_failure else ""
        parts = [channel.problem, last]
        parts += [f"{number:,} {code}" for code, number in channel.failures.items()]
    return "; ".join(filter(None, parts))


def press(navigation: Navigation, key: str, sample: Sample) -> Navigation:
    """The navigation after a key; the same one after `QUIT` and unknown keys."""
    action = _ACTIONS.get(key)
    return navigation if action is None else action(navigation, sample)


def _move(navigation: Navigation, sample: Sample, step: int) -> Navigation:
    rows = order_rows(choose_table(sample, navigation), navigation)
    if not rows:
        return navigation
    index = min(max(find_selected(rows, navigation) + step, 0), len(rows) - 1)
    return replace(navigation, selected=rows[index].key)


def _open(navigation: Navigation, sample: Sample) -> Navigation:
    rows = order_rows(choose_table(sample, navigation), navigation)
    if not rows or navigation.cluster is not None:
        return navigation
    key = rows[find_selected(rows, navigation)].key
    if find_channel(sample, navigation) is None:
        return replace(navigation, channel=key, selected="", sort="", is_reversed=False)
    return replace(navigation, cluster=key, selected="", sort="", is_reversed=False)


def _go_back(navigation: Navigation, _sample: Sample) -> Navigation:
    if navigation.shows_tree:
        return replace(navigation, shows_tree=False)
    opened = {"cluster": None} if navigation.cluster is not None else {"channel": ""}
    selected = navigation.channel if navigation.cluster is None else navigation.cluster
    return replace(navigation, selected=selected, sort="", is_reversed=False, **opened)


def _sort(navigation: Navigation, sample: Sample) -> Navigation:
    columns = ("", *choose_table(sample, navigation).columns)
    index = columns.index(navigation.sort) if navigation.sort in columns else 0
    return replace(navigation, sort=columns[(index + 1) % len(columns)])


def _toggle_tree(navigation: Navigation, sample: Sample) -> Navigation:
    if find_channel(sample, navigation) is None:
        navigation = _open(navigation, sample)
    return replace(navigation, shows_tree=not navigation.shows_tree)


_ACTIONS: Final[Mapping[str, Callable[[Navigation, Sample], Navigation]]] = {
    UP: lambda navigation, sample: _move(navigation, sample, -1),
    DOWN: lambda navigation, sample: _move(navigation, sample, 1),
    ENTER: _open,
    BACK: _go_back,
    "sort": _sort,
    "reverse": lambda navigation, _: replace(navigation, is_reversed=not navigation.is_reversed),
    "tree": _toggle_tree,
    "pause": lambda navigation, _: replace(navigation, is_paused=not navigation.is_paused),
}
