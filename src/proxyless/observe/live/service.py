"""Methods of the live service, `proxyless.live.v1.Live`.

They check requests, and build the `Query` that collects what the response contains.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

from proxyless.base import quote
from proxyless.base.explanation import to_json, to_text
from proxyless.base.texts import escape_json
from proxyless.front.conversions import to_metadata
from proxyless.observe.live.messages import (
    PACKAGE,
    SnapshotEncoder,
    encode_event,
    live_class,
    set_time,
)
from proxyless.observe.live.queries import Pause, Query, RefusedRequestError, ServiceMethods
from proxyless.observe.live.views import NAME_MAX, Contents, list_open, short, view_channels
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from proxyless.base import Metadata
    from proxyless.base.explanation import Explanation
    from proxyless.channel import Channel, ChannelView, LoopStack
    from proxyless.observe.flight.recorder import FlightRecorder
    from proxyless.observe.live.views import LiveChannel
    from proxyless.protos import Proto

LIVE_SERVICE: Final = f"{PACKAGE}.Live"

CHANNELS_MAX: Final = 100
EVENTS_MAX: Final = 500
EXPLANATIONS_MAX: Final = 20
EXPLANATION_CHARS_MAX: Final = 64 * 1024
METHOD_CHARS_MAX: Final = 1_000
TARGET_CHARS_MAX: Final = 4_096
METADATA_MAX: Final = 100
METADATA_BYTES_MAX: Final = 16 * 1024
INTERVAL_DEFAULT_S: Final = 1.0
INTERVAL_MIN_S: Final = 0.1
INTERVAL_MAX_S: Final = 3_600.0
# A watch occupies a thread of a blocking server.
WATCHES_MAX: Final = 16
# Collecting snapshots takes at most this part of the time, however short the interval is.
DUTY_CYCLE: Final = 0.1

_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT

Explain: TypeAlias = "Callable[[ChannelView, str, Metadata], Explanation]"


class LiveService:
    """The methods, and the number of watches. Used by the threads of servers."""

    def __init__(self, recorder: FlightRecorder, explain: Explain) -> None:
        self._recorder: Final = recorder
        self._explain: Final = explain
        self._added: Final = datetime.now(UTC).timestamp()
        self._watches: dict[object, None] = {}

    def methods(self) -> ServiceMethods:
        return ServiceMethods(
            LIVE_SERVICE,
            {
                "GetSnapshot": (live_class("SnapshotRequest"), self.get_snapshot),
                "Explain": (live_class("ExplainRequest"), self.explain),
            },
            {
                "WatchSnapshots": (live_class("WatchRequest"), self.watch_snapshots),
                "GetRecording": (live_class("RecordingRequest"), self.get_recording),
            },
        )

    # Snapshots

    def get_snapshot(self, request: Proto) -> Query:
        return self._collect(request, lambda _: None)

    def _collect(self, request: Proto, on_last_event: Callable[[int], None]) -> Query:
        """Collect one snapshot; the callback gets the number of its last event."""
        check_target(request.target)
        choose = channel_filter(request.target, request.channel_id)
        is_chosen = bool(request.target or request.channel_id)

        def work(stack: LoopStack) -> Generator[None, None, list[LiveChannel]]:
            return view_channels(
                stack, lambda each: choose(each) and each.id > request.after_channel_id, Contents()
            )

        def finish(results: list[list[LiveChannel]], silent: int) -> list[bytes]:
            found = sorted((each for result in results for each in result), key=lambda one: one.id)
            if is_chosen and not found and not silent:
                raise no_such_channel(request.target, request.channel_id)
            snapshot = self._encode(request, found, silent)
            on_last_event(snapshot.last_event)
            return [snapshot.SerializeToString()]

        return Query(work, finish)

    def watch_snapshots(self, request: Proto) -> Iterator[Query | Pause]:
        interval_s = INTERVAL_DEFAULT_S
        if request.HasField("interval"):
            interval_s = request.interval.ToNanoseconds() / 1e9
        interval_s = min(max(interval_s, INTERVAL_MIN_S), INTERVAL_MAX_S)
        if len(self._watches) >= WATCHES_MAX:
            text = f"there are {WATCHES_MAX} watches already, the maximum of a process"
            raise RefusedRequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        watch = object()
        self._watches[watch] = None
        try:
            yield from self._snapshots(request.request, interval_s)
        finally:
            self._watches.pop(watch, None)

    def _snapshots(self, request: Proto, interval_s: float) -> Iterator[Query | Pause]:
        def on_last_event(number: int) -> None:
            request.after_event = number

        while True:
            began = datetime.now(UTC)
            yield self._collect(request, on_last_event)
            took_s = (datetime.now(UTC) - began).total_seconds()
            yield Pause(max(interval_s - took_s, took_s / DUTY_CYCLE, INTERVAL_MIN_S))

    def _encode(self, request: Proto, found: list[LiveChannel], silent: int) -> Proto:
        snapshot = live_class("Snapshot")(silent_loops=silent)
        set_time(snapshot.time, datetime.now(UTC).timestamp())
        snapshot.process.pid = os.getpid()
        snapshot.process.version = __version__
        snapshot.process.python = platform.python_version()
        set_time(snapshot.process.service_added, self._added)
        limit = min(request.channels_max or CHANNELS_MAX, CHANNELS_MAX)
        snapshot.has_more_channels = len(found) > limit
        encoder = SnapshotEncoder(has_trees=not request.exclude_lb_trees)
        for channel in found[:limit]:
            encoder.add_channel(channel, snapshot.channels.add())
        snapshot.last_event = self._recorder.last_number
        if not request.exclude_events:
            events, left_out = self._recorder.events_after(request.after_event, EVENTS_MAX)
            snapshot.events_left_out = left_out
            # Not the last of the recorder: another thread may have added one since.
            snapshot.last_event = events[-1]["number"] if events else request.after_event
            for event in events:
                encode_event(event, snapshot.events.add())
        return snapshot

    # Explanations

    def explain(self, request: Proto) -> Query:
        check_target(request.target)
        path = check_method(request.method)
        metadata = read_metadata(request.metadata)
        choose = channel_filter(request.target, request.channel_id)

        def work(stack: LoopStack) -> Generator[None, None, list[_Explained]]:
            found: list[_Explained] = []
            # One more than shown, to find out whether there are more.
            for channel in list_open(stack):
                if choose(channel) and len(found) <= EXPLANATIONS_MAX:
                    explanation = self._explain(channel.view(), path, metadata)
                    found.append((channel.id, channel.target, explanation))
                    yield
            return found

        def finish(results: list[list[_Explained]], silent: int) -> list[bytes]:
            found = sorted((each for result in results for each in result), key=lambda one: one[0])
            if not found and not silent:
                raise no_such_channel(request.target, request.channel_id)
            response = live_class("ExplainResponse")(silent_loops=silent)
            response.is_truncated = len(found) > EXPLANATIONS_MAX
            for each in found[:EXPLANATIONS_MAX]:
                _encode_explanation(each, response.explanations.add())
            return [response.SerializeToString()]

        return Query(work, finish)

    # Recordings

    def get_recording(self, _request: Proto) -> Iterator[Query | Pause]:
        chunk_class = live_class("RecordingChunk")

        def work(_stack: LoopStack) -> Generator[None, None, None]:
            yield from ()

        def finish(_results: list[Any], _silent: int) -> list[bytes]:
            chunks = self._recorder.dump_chunks()
            return [chunk_class(lines=chunk).SerializeToString() for chunk in chunks]

        yield Query(work, finish)


_Explained: TypeAlias = "tuple[int, str, Explanation]"


def _encode_explanation(explained: _Explained, into: Proto) -> None:
    into.channel_id, target, explanation = explained
    into.target = short(target, NAME_MAX)
    into.text = to_text(explanation)[:EXPLANATION_CHARS_MAX]
    into.problem = short(explanation.problem)
    document = escape_json(json.dumps(to_json(explanation), ensure_ascii=False, default=str))
    if len(document) > EXPLANATION_CHARS_MAX:
        # Still a document: the sentence without its parts.
        cut = {"kind": explanation.kind, "text": explanation.text, "is_truncated": True}
        document = escape_json(json.dumps(cut, ensure_ascii=False))
    into.json = document


# Requests


def channel_filter(target: str, channel_id: int) -> Callable[[Channel], bool]:
    def choose(channel: Channel) -> bool:
        return (not target or channel.target == target) and (
            not channel_id or channel.id == channel_id
        )

    return choose


def check_target(target: str) -> None:
    if len(target) > TARGET_CHARS_MAX:
        text = f"target has {len(target)} characters, wanted at most {TARGET_CHARS_MAX}"
        raise RefusedRequestError(_INVALID, text)


def no_such_channel(target: str, channel_id: int) -> RefusedRequestError:
    conditions = [f"target {quote(target)}"] if target else []
    conditions += [f"ID {channel_id}"] if channel_id else []
    text = f"no open channel with {' and '.join(conditions)}" if conditions else "no open channel"
    return RefusedRequestError(grpc.StatusCode.NOT_FOUND, text)


def check_method(method: str) -> str:
    """The path of a method, `/service/method`."""
    if not method or len(method) > METHOD_CHARS_MAX:
        text = f"method has {len(method)} characters, wanted 1 to {METHOD_CHARS_MAX}"
        raise RefusedRequestError(_INVALID, text)
    return method if method.startswith("/") else f"/{method}"


def read_metadata(headers: Any) -> Metadata:  # noqa: ANN401 - a repeated field
    """The metadata of a request. Errors are without the values, which may be secrets."""
    if len(headers) > METADATA_MAX:
        text = f"metadata has {len(headers)} entries, wanted at most {METADATA_MAX}"
        raise RefusedRequestError(_INVALID, text)
    size = sum(len(header.key) + len(header.value) for header in headers)
    if size > METADATA_BYTES_MAX:
        text = f"metadata has {size} bytes, wanted at most {METADATA_BYTES_MAX}"
        raise RefusedRequestError(_INVALID, text)
    return tuple(map(_read_header, headers))


def _read_header(header: Proto) -> tuple[str, str | bytes]:
    key: str = header.key.lower()
    value: bytes = header.value
    try:
        (pair,) = to_metadata([(key, value if key.endswith("-bin") else value.decode("ascii"))])
    except ValueError:
        text = f"metadata {quote(key)}: the key or the value is not valid"
        raise RefusedRequestError(_INVALID, text) from None
    return pair
