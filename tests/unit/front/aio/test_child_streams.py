"""Unit tests of proxyless.front.aio.child_streams. Its streams: tests/contracts, tests/e2e."""

import grpc.aio
import pytest

from proxyless.front.aio.child_streams import InterceptedStreams


class _OfStreams(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Intercepts streams."""

    async def intercept_stream_stream(self, *_: object) -> None:
        raise NotImplementedError


def test_interceptors_are_checked_at_once() -> None:
    InterceptedStreams([_OfStreams()])
    with pytest.raises(ValueError, match="is of no known kind"):
        InterceptedStreams([object()])
