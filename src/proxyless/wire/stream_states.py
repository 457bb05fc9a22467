"""States of one direction of a stream, and their transitions.

Specs: RFC 9113 section 5.1 (stream states).

A stream has one `HalfState` per direction. `TRANSITIONS` is the table of both directions and both
roles, and every change of state assigns a value of that table. The states of RFC 9113 are pairs of
them (never "reserved": push is disabled):

    RFC 9113              sending             receiving
    idle                  IDLE, IDLE_ENDING   IDLE                  client: over the stream limit
    open                  OPEN, ENDING        IDLE, OPEN
                          IDLE                OPEN                  server: no response head yet
    half-closed (local)   HALF_CLOSED         IDLE, OPEN            client
    half-closed (remote)  IDLE, OPEN, ENDING  HALF_CLOSED           server
    closed                CLOSED              UNDELIVERED, CLOSED
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class HalfState(Enum):
    """State of one direction of a stream, with the next state after each event.

    An event that cannot happen in a state has no attribute there: reading it is a bug of ours.
    """

    IDLE = "no HEADERS yet"
    IDLE_ENDING = "no HEADERS yet, and the last message is queued"
    OPEN = "HEADERS sent or received, messages may follow"
    ENDING = "the last message is queued, END_STREAM or trailers follow it"
    HALF_CLOSED = "END_STREAM sent or received"
    UNDELIVERED = "stream closed, held messages and the end are still to be delivered"
    CLOSED = "stream closed"

    # HEADERS without END_STREAM.
    after_headers: HalfState
    # The owner has sent its last message, and the message or what follows it has to wait.
    after_last_message: HalfState
    after_end_stream: HalfState
    # The peer has ended the stream behind messages that are held.
    after_end_behind_held: HalfState
    # The last held message is delivered, or dropped.
    after_delivery: HalfState
    # The stream leaves the connection's table.
    after_close: HalfState

    # Derived.
    is_idle: bool
    is_closed: bool
    takes_messages: bool


IDLE: Final = HalfState.IDLE
OPEN: Final = HalfState.OPEN
ENDING: Final = HalfState.ENDING
HALF_CLOSED: Final = HalfState.HALF_CLOSED
UNDELIVERED: Final = HalfState.UNDELIVERED

TRANSITIONS: Final[dict[HalfState, dict[str, HalfState]]] = {
    HalfState.IDLE: {
        "after_headers": HalfState.OPEN,
        "after_last_message": HalfState.IDLE_ENDING,
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.IDLE_ENDING: {
        "after_headers": HalfState.ENDING,
        "after_close": HalfState.CLOSED,
    },
    HalfState.OPEN: {
        "after_last_message": HalfState.ENDING,
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_end_behind_held": HalfState.UNDELIVERED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.ENDING: {
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.HALF_CLOSED: {"after_close": HalfState.CLOSED},
    HalfState.UNDELIVERED: {
        "after_close": HalfState.UNDELIVERED,
        "after_delivery": HalfState.CLOSED,
    },
    HalfState.CLOSED: {},
}

# State changes of an RPC are assignments of these values, with no lookup in the table.
for _state, _row in TRANSITIONS.items():
    _state.is_idle = _state in {HalfState.IDLE, HalfState.IDLE_ENDING}
    _state.is_closed = _state in {HalfState.UNDELIVERED, HalfState.CLOSED}
    _state.takes_messages = _state in {HalfState.IDLE, HalfState.OPEN}
    for _event, _next in _row.items():
        setattr(_state, _event, _next)
