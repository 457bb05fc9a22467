"""Fuzzer of texts from peers: cookies of backends, CSDS responses, NACKs, and answers of proxies.

Rules: nothing raises; what is kept and sent has a bound; a backend's cookie never decides where a
session goes; what is printed or logged is printable, and JSON has the same value as before.

An input depends only on seed and index, so that one line reproduces a failure.
"""

import argparse
import json
import sys
import traceback
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import DecodeError

from proxyless.base import Metadata, one_line, quote, validate_metadata
from proxyless.base.texts import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, escape_json
from proxyless.cli.status import _rows, _to_json
from proxyless.controlplane import CLUSTER, AdsStream, RequestRefused, Snapshot, eds_cluster
from proxyless.front.cookies import (
    COOKIES_MAX,
    JAR_BYTES_MAX,
    SENT_BYTES_MAX,
    CookieJar,
    format_cookies,
)
from proxyless.observe import read_status
from proxyless.observe.csds import RESPONSE
from proxyless.protos import message_class
from proxyless.runtime import Random, seeded_random
from proxyless.transport.http_connect import HEAD_BYTES_MAX, ConnectResponse, Refused
from proxyless.xds.filters.session_filter import (
    BackendCookies,
    SessionSetCookie,
    read_session_endpoint,
)
from tools.fuzz_xds import damage, fill, pick, some_input

# For ages in the rows of `status`.
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
PATHS: Final = ("/a.B/C", "/a.B/D", "/x")
HOME, ELSEWHERE = (b64encode(text).decode() for text in (b"10.0.0.1:80;home", b"10.0.0.9:80;evil"))
FRAGMENTS: Final = (
    *("=", ";", "; ", ",", '"', " ", "\t", "session", "a", "b", HOME, ELSEWHERE),
    *("Path=", "Path=/", "Path=/a.B", "Max-Age=", "Max-Age=0", "Max-Age=-1", "HttpOnly", "0", "9"),
    *(
        "9" * 400,
        "x" * 900,
        "x" * 3_900,
        "\0",
        "\n",
        "\r\n",
        "\x1b[2J",
        "\x1b]0;t\x07",
        "\x9b",
        "é",
    ),
    *("\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\U000e0001", "\U0001f600", "\ud800"),
    *("HTTP/1.1 200 OK\r\n", "HTTP/1.0 407 No\n", "\r\n\r\n", "\n\n", "X: y\r\n", "PRI * HTTP/2.0"),
)


def some_text(rng: Random, parts_max: int = 8) -> str:
    return "".join(pick(rng, FRAGMENTS) for _ in range(int(rng.uniform(0, parts_max))))


# Cookies


def fuzz_cookies(rng: Random) -> str:
    """Responses of backends and of the filter, and the cookies of each next request."""
    jar = CookieJar()
    now_s = 0.0
    for _ in range(int(rng.uniform(1, 12))):
        now_s += rng.uniform(0, 3)
        path = pick(rng, PATHS)
        own: Metadata = (("k", "v" * int(rng.uniform(0, 7_000))),)
        sent = jar.choose(path, lambda now_s=now_s: now_s, own)  # type: ignore[misc]
        check_sent(format_cookies(sent), own)
        jar.on_response(tuple(some_set_cookies(rng)), sent, now_s)
        check_kept(jar, now_s)
    return "kept" if jar._of_backends else "empty"  # noqa: SLF001 - what is kept is private


def some_set_cookies(rng: Random) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for _ in range(int(rng.uniform(0, 4))):
        if rng.uniform(0, 1) < 0.2:  # noqa: PLR2004 - one in five
            text: str = SessionSetCookie(f"session={HOME}{pick(rng, ('', '; Path=/a.B'))}")
        else:
            name = pick(rng, ("session", "a", "b", some_text(rng)))
            text = f"{name}={pick(rng, (ELSEWHERE, some_text(rng)))}; {some_text(rng)}"
        found.append(("set-cookie", text))
    return found


def check_sent(headers: Metadata, own: Metadata) -> None:
    validate_metadata(headers)
    backend_bytes = sum(len(value) for _, value in headers if isinstance(value, BackendCookies))
    assert backend_bytes <= SENT_BYTES_MAX
    assert not backend_bytes or backend_bytes + len(own[0][1]) <= 8 * 1024
    assert read_session_endpoint(headers, "session").cluster in ("", "home")


def check_kept(jar: CookieJar, now_s: float) -> None:
    for cookies in (jar._of_backends, jar._of_filter):  # noqa: SLF001 - what is kept is private
        assert len(cookies) <= COOKIES_MAX
        assert sum(each.size_bytes for each in cookies) <= JAR_BYTES_MAX
    assert jar.endpoint(lambda: now_s).cluster in ("", "home")


# Texts on a terminal


def check_printable(text: str) -> None:
    for shown in (one_line(text), one_line(text, NAME_LENGTH_MAX), quote(text)):
        assert shown.isprintable()
    assert len(one_line(text)) <= TEXT_LENGTH_MAX
    assert one_line(one_line(text)) == one_line(text)


def fuzz_status(rng: Random) -> str:
    """A CSDS response with random fields, or its damaged bytes."""
    message = message_class(RESPONSE)()
    fill(rng, message)
    message.config.add().generic_xds_configs.add()
    for config in message.config:
        config.client_scope = without_surrogates(some_text(rng))
        for entry in config.generic_xds_configs:
            entry.name = without_surrogates(some_text(rng))
            entry.error_state.details = without_surrogates(some_text(rng))
            name, content = some_input(rng)
            entry.type_url = f"x/{name}"
            entry.xds_config.value = content
    serialized = message.SerializeToString()
    if rng.uniform(0, 1) < 0.5:  # noqa: PLR2004 - half of them
        serialized = damage(rng, serialized)
    try:
        message = message_class(RESPONSE).FromString(serialized)
    except DecodeError:
        return "refused"
    clients = read_status(message)
    for row in _rows(clients, NOW):
        for cell in row:
            check_printable(cell)
    document = [_to_json(client) for client in clients]
    escaped = escape_json(json.dumps(document, indent=2, ensure_ascii=False))
    assert "".join(escaped.split("\n")).isprintable()
    assert json.loads(escaped) == document
    return "shown"


def fuzz_text(rng: Random) -> str:
    text = some_text(rng, 40)
    check_printable(text)
    escaped = escape_json(json.dumps([text], ensure_ascii=False))
    assert escaped.isprintable()
    assert json.loads(escaped) == [text]
    return "long" if len(text) > TEXT_LENGTH_MAX else "short"


def without_surrogates(text: str) -> str:
    return text.replace("\ud800", "")


# The control plane


def fuzz_nack(rng: Random) -> str:
    """Requests of a client, of which some are NACKs."""
    nacks: list[object] = []
    stream = AdsStream(is_paced=False, on_nack=nacks.append)
    stream.on_snapshot(Snapshot.of([eds_cluster("a")], partial=True))
    try:
        for _ in range(int(rng.uniform(1, 5))):
            request = message_class("envoy.service.discovery.v3.DiscoveryRequest")(
                type_url=pick(rng, (CLUSTER, CLUSTER, without_surrogates(some_text(rng)))),
                response_nonce=pick(rng, ("", "1", "1")),
                resource_names=pick(rng, ([], ["*"], [without_surrogates(some_text(rng))])),
            )
            request.node.id = without_surrogates(some_text(rng, 400))
            if rng.uniform(0, 1) < 0.7:  # noqa: PLR2004 - most of them
                request.error_detail.message = without_surrogates(some_text(rng, 400))
            stream.on_request(request)
    except RequestRefused:
        return "refused"
    for nack in nacks:
        assert str(nack).isprintable()
        assert len(str(nack)) <= TEXT_LENGTH_MAX + 2 * NAME_LENGTH_MAX
    return "nacked" if nacks else "acked"


# Proxies


def fuzz_proxy(rng: Random) -> str:
    """The answer to CONNECT, cut into random pieces."""
    head = pick(rng, ("HTTP/1.1 200 OK\r\n", "HTTP/1.1 407 No\r\n", "HTTP/1.", ""))
    text = head + some_text(rng, 30)
    unread = text.encode("utf-8", "surrogatepass")
    parser, verdict = ConnectResponse(), None
    taken = 0
    while unread and verdict is None:
        size = int(rng.uniform(1, 5_000))
        verdict, unread, taken = parser.receive(unread[:size]), unread[size:], taken + size
        assert verdict is not None or taken <= HEAD_BYTES_MAX + size
    verdict = verdict or parser.on_end()
    if isinstance(verdict, Refused):
        assert verdict.why.isprintable()
        return "refused"
    return "accepted"


KINDS: Final[dict[str, Callable[[Random], str]]] = {
    "cookies": fuzz_cookies,
    "status": fuzz_status,
    "text": fuzz_text,
    "nack": fuzz_nack,
    "proxy": fuzz_proxy,
}


@dataclass
class Findings:
    """Results of a run."""

    ends: Counter[str] = field(default_factory=Counter)
    # One line for each, which reproduces it.
    failures: list[str] = field(default_factory=list)


def run_one(seed: int, index: int) -> str:
    """Run one input. Raises if a rule is violated."""
    rng = seeded_random(seed << 40 | index)
    kind = tuple(KINDS)[index % len(KINDS)]
    return f"{kind} {KINDS[kind](rng)}"


def run_all(seed: int, inputs: int) -> Findings:
    findings = Findings()
    for index in range(inputs):
        try:
            findings.ends[run_one(seed, index)] += 1
        except Exception as error:  # Any exception is a finding.
            text = one_line(f"{type(error).__name__}: {error}", NAME_LENGTH_MAX)
            findings.failures.append(f"tools.fuzz_texts --seed {seed} --index {index}  # {text}")
    return findings


def reproduce(seed: int, index: int) -> int:
    """Run one input and print the error."""
    try:
        end = run_one(seed, index)
    except Exception:  # It is printed.
        traceback.print_exc()
        return 1
    print(f"seed {seed} index {index}: {end}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--index", type=int, help="run only this input and print the error")
    arguments = parser.parse_args()
    if arguments.index is not None:
        return reproduce(arguments.seed, arguments.index)
    findings = run_all(arguments.seed, arguments.inputs)
    for end, count in sorted(findings.ends.items()):
        print(f"{count:8} {end}")
    for failure in findings.failures[:20]:
        print(f"FAILED {failure}")
    print(
        f"fuzz: {arguments.inputs} texts of seed {arguments.seed},"
        f" {len(findings.failures)} failures"
    )
    return int(bool(findings.failures))


if __name__ == "__main__":
    sys.exit(main())
