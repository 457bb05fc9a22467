"""Unit tests of tools.peers.h2spec."""

from tools.peers.h2spec import parse_output

OUTPUT = """\
Report server is listened at http://127.0.0.1:80
Generic tests for HTTP/2 client -> 5. Streams and Multiplexing -> 5.1. Stream States
\x1b[32m✔\x1b[0m \x1b[90m1:\x1b[0m \x1b[90midle: Sends a DATA frame\x1b[0m
Generic tests for HTTP/2 client -> 5. Streams and Multiplexing -> 5.1. Stream States
× 1: idle: Sends a DATA frame
Error: EOF
Generic tests for HTTP/2 client -> 6. Frame Definitions -> 6.1. DATA
\x1b[31m× 3: Sends a DATA frame with invalid pad length\x1b[0m
  \x1b[31m-> The endpoint MUST object.\x1b[0m
\x1b[33m     Expected: GOAWAY Frame\x1b[0m
       Actual: PING Frame
Generic tests for HTTP/2 client -> 6. Frame Definitions -> 6.1. DATA
× 4: Sends nothing
Error: No HEADER frame received
"""


def test_each_case_has_the_outcome_of_its_first_connection() -> None:
    assert parse_output(OUTPUT.splitlines(keepends=True)) == {
        "5.1/1: idle: Sends a DATA frame": None,
        "6.1/3: Sends a DATA frame with invalid pad length": "wanted: GOAWAY Frame",
        "6.1/4: Sends nothing": "No HEADER frame received",
    }
