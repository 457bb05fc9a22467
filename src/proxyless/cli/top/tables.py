"""Tables of a sample: channels, the clusters of one, the endpoints of one cluster, or all of them.

A cell has a text to show and a value to sort by. An unknown number is shown as "-".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.cli.top.samples import ChannelRow, ClusterRow, EndpointRow, Sample, Traffic

UNKNOWN: Final = "-"

_STYLES: Final = {
    "READY": "green",
    "ACKED": "green",
    "HEALTHY": "green",
    "CONNECTING": "yellow",
    "REQUESTED": "yellow",
    "IDLE": "blue",
    "": "dim",
}
_BAD: Final = "bold red"
_TRAFFIC: Final = ("rpc/s", "fail/s", "in flight")


@frozen
class Cell:
    """One cell of a table."""

    text: str
    # Numbers are sorted from the largest, texts in their order.
    value: float | str
    style: str = ""


@frozen
class TableRow:
    """One row; the key identifies what it shows in the next sample as well."""

    key: str
    cells: tuple[Cell, ...]


@frozen
class SampleTable:
    """A table with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def sorted_by(self, column: str, *, is_reversed: bool) -> tuple[TableRow, ...]:
        """The rows sorted by a column; in the order of the sample if there is no such column."""
        rows = list(self.rows)
        if column in self.columns:
            index = self.columns.index(column)
            rows.sort(key=lambda row: _sort_key(row.cells[index]))
        if is_reversed:
            rows.reverse()
        return tuple(rows)


def _sort_key(cell: Cell) -> tuple[float, str]:
    return (0.0, cell.value) if isinstance(cell.value, str) else (-cell.value, "")


def tabulate_channels(sample: Sample) -> SampleTable:
    columns = ("target", "state", *_TRAFFIC, "waiting", "configs", "clusters", "problem")
    rows = [
        TableRow(
            channel.key,
            (
                _text(channel.target),
                _state(channel.state),
                *_traffic(channel.traffic),
                _number(channel.waiting),
                _number(channel.generation),
                _number(len(channel.clusters)),
                Cell(
                    channel.shown_problem, channel.shown_problem, "red" if channel.problem else ""
                ),
            ),
        )
        for channel in sample.channels
    ]
    return SampleTable("channels", columns, tuple(rows))


def tabulate_clusters(channel: ChannelRow) -> SampleTable:
    columns = ("cluster", "state", *_TRAFFIC, "ready", "ejected", "priority", "problem")
    rows = [
        TableRow(
            cluster.name,
            (
                _text(cluster.name or UNKNOWN),
                _state(cluster.state),
                *_traffic(cluster.traffic),
                _share(cluster),
                _number(cluster.ejected, _BAD if cluster.ejected else ""),
                _priority(cluster),
                _problem(cluster.problem),
            ),
        )
        for cluster in channel.clusters
    ]
    return SampleTable(f"clusters of {channel.target}", columns, tuple(rows))


def tabulate_endpoints(cluster: ClusterRow) -> SampleTable:
    columns = ("endpoint", "state", *_TRAFFIC, "priority", "locality", "note")
    rows = [
        TableRow(
            endpoint.address,
            (
                Cell(endpoint.address, endpoint.address, "" if endpoint.is_in_use else "dim"),
                *_endpoint_cells(endpoint),
            ),
        )
        for endpoint in cluster.endpoints
    ]
    title = f"endpoints of {cluster.name}" if cluster.name else "endpoints"
    if len(cluster.endpoints) < cluster.total:
        title += f", {len(cluster.endpoints)} of {cluster.total}"
    return SampleTable(title, columns, tuple(rows))


def tabulate_all(sample: Sample) -> SampleTable:
    """All endpoints with their channels and clusters; a channel or cluster without any is a row."""
    columns = ("target", "cluster", "endpoint", "state", *_TRAFFIC, "priority", "locality", "note")
    rows = tuple(row for channel in sample.channels for row in _all_rows(channel))
    return SampleTable("endpoints", columns, rows)


def _all_rows(channel: ChannelRow) -> Iterator[TableRow]:
    for cluster in channel.clusters:
        places = (_text(channel.target), _text(cluster.name or UNKNOWN))
        key = f"{channel.key}/{cluster.name}"
        for endpoint in cluster.endpoints:
            cells = (*places, _text(endpoint.address), *_endpoint_cells(endpoint))
            yield TableRow(f"{key}/{endpoint.address}", cells)
        if not cluster.endpoints:
            cells = (*places, _text(UNKNOWN), _state(cluster.state), *_traffic(cluster.traffic))
            yield TableRow(key, (*cells, _text(""), _text(""), _problem(cluster.problem)))
    if not channel.clusters:
        cells = (_text(channel.target), _text(UNKNOWN), _text(UNKNOWN), _state(channel.state))
        cells = (*cells, *_traffic(channel.traffic), _text(""), _text(""))
        yield TableRow(channel.key, (*cells, _problem(channel.problem)))


def _endpoint_cells(endpoint: EndpointRow) -> tuple[Cell, ...]:
    note = endpoint.note
    if endpoint.is_ejected and "eject" not in note:
        note = "; ".join(filter(None, ("ejected", note)))
    style = _BAD if endpoint.is_ejected else ""
    return (
        _state(endpoint.state),
        *_traffic(endpoint.traffic),
        # The first priority is the first row.
        Cell(str(endpoint.priority), -float(endpoint.priority)),
        _text(endpoint.locality),
        Cell(note, note, style),
    )


def _text(text: str) -> Cell:
    return Cell(text, text)


def _problem(text: str) -> Cell:
    return Cell(text, text, "red")


def _state(state: str) -> Cell:
    return Cell(state or UNKNOWN, state, _STYLES.get(state, _BAD))


def _traffic(traffic: Traffic) -> Sequence[Cell]:
    return (
        show_rate(traffic.rate),
        show_rate(traffic.failure_rate, _BAD if traffic.failure_rate else ""),
        _number(traffic.in_flight),
    )


def show_rate(rate: float | None, style: str = "") -> Cell:
    """A rate: whole from 10 on."""
    if rate is None:
        return Cell(UNKNOWN, -1.0, "dim")
    return Cell(f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}", rate, style)  # noqa: PLR2004


def _number(number: int | None, style: str = "") -> Cell:
    return Cell(UNKNOWN, -1.0, "dim") if number is None else Cell(f"{number:,}", number, style)


def _share(cluster: ClusterRow) -> Cell:
    if cluster.ready is None:
        return Cell(f"{UNKNOWN} of {cluster.total}", cluster.total)
    style = "" if cluster.ready else _BAD
    return Cell(f"{cluster.ready} of {cluster.total}", cluster.ready, style)


def _priority(cluster: ClusterRow) -> Cell:
    if cluster.priority_in_use is None:
        text = f"{UNKNOWN} of {cluster.priorities}" if cluster.priorities else UNKNOWN
        return Cell(text, -1.0)
    style = "yellow" if cluster.priority_in_use else ""
    text = f"{cluster.priority_in_use} of {cluster.priorities}"
    return Cell(text, cluster.priority_in_use, style)
