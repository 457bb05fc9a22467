"""FilterStack: the order of filters, delays and aborts."""

from proxyless.base import OK, Metadata, Status, StatusCode
from proxyless.wire import StreamEnd
from proxyless.xds.filters.rpc_filter import FilterOrigin, FilterStack, RpcFilter

ABORT = Status(StatusCode.ABORTED, "on purpose")
ORIGIN = FilterOrigin("orders", "edge-7", ("auth", "quiet", "faults", "late"))


class Named(RpcFilter):
    """Adds its name to metadata and trailers."""

    def __init__(self, name: str, delay_s: float = 0.0, abort: Status | None = None) -> None:
        self._name = name
        self._delay_s = delay_s
        self._abort = abort
        self.calls: list[str] = []

    @property
    def delay_s(self) -> float:
        return self._delay_s

    @property
    def abort(self) -> Status | None:
        return self._abort

    def on_delay_start(self) -> None:
        self.calls.append("start")

    def on_delay_end(self) -> None:
        self.calls.append("end")

    def on_head(self, metadata: Metadata) -> Metadata:
        return (*metadata, ("by", self._name))

    def on_end(self, end: StreamEnd, *, had_head: bool) -> StreamEnd:
        return StreamEnd(end.status, (*end.trailers, (self._name, str(had_head))))


def test_responses_pass_the_filters_in_the_reverse_order() -> None:
    stack = FilterStack([Named("first"), RpcFilter(), Named("last")], ORIGIN)
    assert stack.on_head(()) == (("by", "last"), ("by", "first"))
    end = stack.on_end(StreamEnd(OK), had_head=True)
    assert end.trailers == (("last", "True"), ("first", "True"))
    assert (stack.delay_s, stack.abort) == (0.0, None)


def test_delays_are_added_and_every_filter_is_notified() -> None:
    filters = [Named("a", 1.0), Named("b", 2.0)]
    stack = FilterStack([*filters, RpcFilter()], ORIGIN)
    assert stack.delay_s == 3.0
    stack.on_delay_start()
    stack.on_delay_end()
    assert [each.calls for each in filters] == [["start", "end"], ["start", "end"]]


def test_filters_after_an_abort_neither_delay_nor_abort() -> None:
    stack = FilterStack(
        [Named("a", 1.0), None, Named("b", 2.0, ABORT), Named("c", 4.0, OK)], ORIGIN
    )
    assert stack.delay_s == 3.0
    assert stack.abort == Status(
        StatusCode.ABORTED, 'listener "orders": filter "faults": on purpose (node id "edge-7")'
    )


def test_abort_with_ok_is_unchanged() -> None:
    assert FilterStack([Named("a", 0.0, OK)], ORIGIN).abort is OK
