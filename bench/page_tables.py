"""Tables of the page of results. Pure."""

from collections.abc import Sequence
from typing import Final

from bench.results import MISSED, NOT_MEASURED, Figure, Judgement, RowResult

ABSENT: Final = "-"
# Order of columns: references, then ours, then peers.
_CLIENTS: Final = (
    *("grpc_aio_xds", "grpc_aio", "grpc_sync", "tls_grpc_aio", "mtls_grpc_aio"),
    *("metrics_grpc_sync", "grpcio", "xds_asyncio", "xds_uvloop", "transport_asyncio"),
    *("transport_uvloop", "tls_asyncio", "tls_uvloop", "mtls_asyncio", "mtls_uvloop"),
    *("channel_sync", "metrics_sync", "proxyless", "proxyless, delta"),
)
_PACKAGES: Final = {"grpcio": "grpcio", "uvloop": "uvloop", "protobuf": "protobuf"}


def format_summary(rows: Sequence[RowResult]) -> str:
    """Machine and versions, and every missed target."""
    newest = max(rows, key=lambda row: row.date).environment
    packages = ", ".join(f"{name} {newest['packages'].get(key)}" for key, name in _PACKAGES.items())
    dates = sorted({row.date.partition("T")[0] for row in rows})
    rounds = sorted({row.rounds for row in rows})
    judged = [(row, each) for row in rows for each in row.judgements]
    missed = [(row, each) for row, each in judged if each.outcome == MISSED]
    lines = [
        (
            f"Measured on {' and '.join(dates)} with {'/'.join(map(str, rounds))} rounds:"
            f" {newest['processor']}, {newest['cpus']} cores, Linux {newest['kernel']},"
            f" Python {newest['python']}, {packages}. Each row has its own date and load."
        ),
        "",
        f"{len(judged) - len(missed)} of {len(judged)} targets are met. Missed:",
        "",
        "| row | target | client | wanted | measured | by round |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {row.number} | {_judgement_cells(each)} |" for row, each in missed]
    return "\n".join(lines)


def format_judgements(row: RowResult) -> str:
    if not row.judgements:
        return ""
    lines = ["| target | client | wanted | measured | by round | |", "|---|---|---|---|---|---|"]
    ordered = sorted(row.judgements, key=lambda each: each.outcome != MISSED)
    for each in ordered:
        shown = f"**{each.outcome}**" if each.outcome == MISSED else each.outcome
        lines.append(f"| {_judgement_cells(each)} | {shown} |")
    return "\n".join(lines)


def _judgement_cells(each: Judgement) -> str:
    sign = "≤" if each.is_upper else "≥"
    got = ABSENT if each.got is None else format_number(each.got)
    rounds = format_range(each.rounds) if len(each.rounds) > 1 else ABSENT
    if each.outcome == NOT_MEASURED:
        rounds = ABSENT
    wanted = f"{sign} {format_number(each.limit)}"
    return " | ".join((each.text, f"`{each.client}`", wanted, got, rounds))


def format_figures(row: RowResult) -> str:
    """One line per workload, size and measure, one column per client."""
    clients = sorted({each.client for each in row.figures}, key=_client_order)
    by_key: dict[tuple[str, int, str], dict[str, Figure]] = {}
    for each in row.figures:
        by_key.setdefault((each.what, each.size, each.measure), {})[each.client] = each
    if not by_key:
        return ""
    lines = [
        "| | size | measure | " + " | ".join(f"`{client}`" for client in clients) + " |",
        "|---|---|---|" + "---|" * len(clients),
    ]
    for (what, size, measure), found in by_key.items():
        cells = [_figure_cell(found.get(client)) for client in clients]
        shown = ABSENT if size == 1 else f"{size:,}"
        lines.append("| " + " | ".join((what, shown, measure, *cells)) + " |")
    return "\n".join(lines)


def _client_order(client: str) -> tuple[int, str]:
    return (_CLIENTS.index(client) if client in _CLIENTS else len(_CLIENTS), client)


def _figure_cell(figure: Figure | None) -> str:
    if figure is None:
        return ABSENT
    if len(figure.rounds) == 1:
        return format_number(figure.median)
    return f"{format_number(figure.median)} ({format_range(figure.rounds)})"


def format_range(values: Sequence[float]) -> str:
    return f"{format_number(min(values))}-{format_number(max(values))}"


def format_number(value: float) -> str:
    """Three digits, and no exponent."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    if abs(value) >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"
