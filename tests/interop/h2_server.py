"""A tiny HTTP/2 server on the `h2` library, which checks every frame that we send it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes, Settings

Answer = Callable[[H2Connection, int], None]


@dataclass
class H2Server:
    """Answers each complete request. Used as the behaviour of a `raw_server`."""

    answer: Answer
    settings: dict[SettingCodes, int] = field(default_factory=dict)
    requests: int = 0
    open_max: int = 0
    # Of each request.
    headers: list[dict[bytes, bytes]] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = H2Connection(H2Configuration(client_side=False))
        http.local_settings = Settings(client=False, initial_values=self.settings)
        http.initiate_connection()
        writer.write(http.data_to_send())
        while data := await reader.read(65536):
            ended = self._take(http, data)
            writer.write(http.data_to_send())
            for stream_id in ended:
                self.answer(http, stream_id)
                writer.write(http.data_to_send())

    def _take(self, http: H2Connection, data: bytes) -> list[int]:
        ended: list[int] = []
        for event in http.receive_data(data):
            if isinstance(event, RequestReceived):
                self.requests += 1
                self.headers.append(dict(event.headers))
                self.open_max = max(self.open_max, http.open_inbound_streams)
            elif isinstance(event, DataReceived):
                http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                ended.append(event.stream_id)
        return ended


def answer_with(
    *head: tuple[str, str], body: bytes | None = None, trailers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """The same answer to every request."""

    def answer(http: H2Connection, stream_id: int) -> None:
        http.send_headers(stream_id, head, end_stream=body is None and not trailers)
        if body is not None:
            http.send_data(stream_id, body, end_stream=not trailers)
        if trailers:
            http.send_headers(stream_id, trailers, end_stream=True)

    return answer
