"""Spans of RPCs, recorded by OpenTelemetry's SDK and written as text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from proxyless.otel import OpenTelemetryPlugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class RecordedTraces:
    """A plugin that traces, and the spans that have ended."""

    def __init__(self, sampler: Sampler = ALWAYS_ON, **options: Any) -> None:  # noqa: ANN401
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.plugin = OpenTelemetryPlugin(tracer_provider=self.provider, **options)

    @contextmanager
    def parent(self, name: str = "app") -> Iterator[Any]:
        """A current span of the application."""
        with self.provider.get_tracer("app").start_as_current_span(name) as span:
            yield span

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.spans]

    def named(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (found,) = [each for each in self.spans if each.name == name]
        return found

    def tree(self, *unlisted: str) -> list[str]:
        """Each span and event on a line, children indented; without attributes of these names."""
        return write_tree(self.spans, unlisted)


def write_tree(spans: Iterable[ReadableSpan], unlisted: Iterable[str] = ()) -> list[str]:
    """The spans in the order of their start."""
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, span.name != "app"))
    ids = {each.context.span_id for each in ordered}
    roots = [each for each in ordered if each.parent is None or each.parent.span_id not in ids]
    hidden = frozenset(unlisted)
    return [line for root in roots for line in _write(root, ordered, hidden, "")]


def _write(
    span: ReadableSpan, spans: Sequence[ReadableSpan], hidden: frozenset[str], indent: str
) -> Iterator[str]:
    status = span.status.status_code.name
    if span.status.description:
        status += f" {span.status.description!r}"
    yield f"{indent}{span.name} [{status}]{_attributes(span.attributes, hidden)}"
    for event in span.events:
        yield f"{indent}  * {event.name}{_attributes(event.attributes, hidden)}"
    for each in spans:
        if each.parent is not None and each.parent.span_id == span.context.span_id:
            yield from _write(each, spans, hidden, f"{indent}  ")


def _attributes(attributes: Any, hidden: frozenset[str]) -> str:  # noqa: ANN401 - the SDK's type
    return "".join(f" {key}={value}" for key, value in attributes.items() if key not in hidden)
