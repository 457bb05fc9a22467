"""Texts of other processes with control characters, in logs and on terminals.

Nothing that a control plane, a client of `serve` or a process with CSDS sends may forge a line,
move a cursor, set a title or change the direction of text.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
import unicodedata
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest

import proxyless.cli
from proxyless.base import Trace, ValidationErrors, one_line, quote
from proxyless.base.texts import TEXT_LENGTH_MAX, escape_json
from proxyless.cli import explain_process, main, status
from proxyless.cli.admin_client import live_message
from proxyless.cli.output import print_table
from proxyless.cli.serve import OneLineFormatter
from proxyless.cli.serving import _log_event
from proxyless.cli.top.sources import ProcessSource
from proxyless.controlplane import (
    CLUSTER,
    AdsStream,
    Locality,
    RequestRefused,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
)
from proxyless.controlplane.ads import (
    NODE_BYTES_MAX,
    SUBSCRIPTION_BYTES_MAX,
    TYPE_URL_LENGTH_MAX,
    TYPES_MAX,
)
from proxyless.lb import PolicyRegistry, parse_policy_list
from proxyless.observe.csds import RESPONSE
from proxyless.protos import Proto, message_class
from tests.mesh_files import write_resources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

REQUEST: Final = "envoy.service.discovery.v3.DiscoveryRequest"

# All C0 and C1 controls, bidirectional controls, invisible characters, line and paragraph ends.
CONTROLS: Final = "".join(
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
)
# A title by OSC, a cleared screen by CSI, both also in their C1 forms; and a forged line.
SEQUENCES: Final = "\x1b]0;owned\x07\x1b[2J\x9d0;owned\x9c\x9b2J\r\n2026-01-01 INFO all is well\n"
HOSTILE: Final = f"x{CONTROLS}{SEQUENCES}y"
MARKUP: Final = re.compile("\x1b\\[[0-9;]*m")


def assert_printable(text: str) -> None:
    """Lines of printable characters only, and no forged one."""
    assert text
    assert "".join(text.split("\n")).isprintable()
    assert "\n2026-01-01" not in text


# The functions


def test_controls_have_all_that_terminals_obey() -> None:
    assert len(CONTROLS) > 200
    for each in "\x00\x07\x08\t\n\r\x1b\x7f\x85\x90\x9b\x9d\u200b\u200f\u202e\u2028\u2066\ufeff":
        assert each in CONTROLS


@pytest.mark.parametrize("character", [*CONTROLS, "\ud800", "\U000e0001"], ids=ascii)
def test_no_control_character_passes(character: str) -> None:
    for text in (character, f"a{character}b", character * 5_000):
        assert one_line(text).isprintable()
        assert quote(text).isprintable()
        assert len(one_line(text)) <= TEXT_LENGTH_MAX
        document = json.dumps({text: [text]}, ensure_ascii=False, indent=2)
        escaped = escape_json(document)
        assert "".join(escaped.split("\n")).isprintable()
        assert json.loads(escaped) == {text: [text]}


@pytest.mark.parametrize("character", [*CONTROLS, "\ud800", "\U000e0001"], ids=ascii)
def test_no_control_character_is_in_the_errors_of_an_input(character: str) -> None:
    errors = ValidationErrors()
    parse_policy_list([{f"policy{character}": {}}], errors, PolicyRegistry([]))
    with errors.field(character), errors.key(character):
        errors.add(character * 1_000)
    assert errors.count == 2
    assert str(errors).isprintable()


# Commands


def held_status() -> Proto:
    """A CSDS response in which every text is hostile."""
    response = message_class(RESPONSE)()
    config = response.config.add(client_scope=HOSTILE)
    config.node.id = HOSTILE
    config.node.user_agent_name = HOSTILE
    for resource in hostile_mesh():
        entry = config.generic_xds_configs.add(
            type_url=resource.type_url, name=resource.name, version_info=HOSTILE, client_status=3
        )
        entry.xds_config.type_url = resource.type_url
        entry.xds_config.value = resource.value
        entry.error_state.details = HOSTILE
        entry.error_state.version_info = HOSTILE
    config.generic_xds_configs.add(type_url=HOSTILE, name=HOSTILE)
    return response


def fill_hostile(message: Proto, depth: int = 4) -> Proto:
    """Set every text of a message, and of one message in each of its lists."""
    for each in message.DESCRIPTOR.fields:
        is_map = each.message_type is not None and each.message_type.GetOptions().map_entry
        value = getattr(message, each.name)
        if is_map and each.message_type.fields_by_name["value"].message_type is None:
            if each.message_type.fields_by_name["value"].type == each.TYPE_STRING:
                value[HOSTILE] = HOSTILE
            else:
                value[HOSTILE] = 1
        elif each.message_type is not None and depth and not is_map:
            fill_hostile(value.add() if each.is_repeated else value, depth - 1)
        elif each.type == each.TYPE_STRING and each.is_repeated:
            value.append(HOSTILE)
        elif each.type == each.TYPE_STRING:
            setattr(message, each.name, HOSTILE)
    return message


def held_explanations() -> Proto:
    response = fill_hostile(live_message("ExplainResponse"))
    response.explanations[0].json = json.dumps({"route": HOSTILE})
    return response


async def hostile_snapshots() -> AsyncIterator[Proto]:
    yield fill_hostile(live_message("Snapshot"))


def hostile_mesh() -> Snapshot:
    place: Any = {Locality(f"zone {HOSTILE}"): [lb_endpoint("10.0.0.1:80")]}
    routes = [route("/other", headers={"k": HOSTILE}, cluster=HOSTILE), route(cluster=HOSTILE)]
    routes[0].name = HOSTILE
    made = listener("api", routes)
    return Snapshot.of([made, eds_cluster(HOSTILE), endpoints(HOSTILE, place)], version=HOSTILE)


class Failed(grpc.RpcError):  # type: ignore[misc]  # grpcio has no types.
    """Error of an RPC to a hostile process."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL

    def details(self) -> str:
        return HOSTILE


@pytest.fixture(params=["responds", "fails"])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A process whose CSDS and live service are hostile."""

    def answer(make: Callable[[], Proto]) -> Callable[..., Proto]:
        def fetch(*_: object, **__: object) -> Proto:
            if request.param == "fails":
                raise Failed
            return make()

        return fetch

    monkeypatch.setattr(status, "fetch_status", answer(held_status))
    monkeypatch.setattr(explain_process, "fetch_status", answer(held_status))
    monkeypatch.setattr(explain_process, "fetch_explanations", answer(held_explanations))
    monkeypatch.setattr(ProcessSource, "_watch", answer(hostile_snapshots))
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_resources(tmp_path / "mesh.json", hostile_mesh())
    # Dangling, invalid, and with an unknown field.
    bad = eds_cluster(f"bad{HOSTILE}", lb_policy="MAGLEV")
    bad.eds_cluster_config.service_name = HOSTILE
    write_resources(tmp_path / "bad.json", Snapshot.of([bad], partial=True))
    return tmp_path


SIMULATE: Final = ("--target", "xds:///api", "--method", "/a.B/C", "--duration", "1s")
OF_A_PROCESS: Final = {
    "status": ["status", "localhost:1"],
    "explain": ["explain", "/a.B/C", "--status", "localhost:1", "--target", "xds:///api"],
    "explain header": ["explain", "/other", "--status", "localhost:1", "--target", "xds:///api"],
    "explain other": ["explain", "/a.B/C", "--status", "localhost:1", "--target", "xds:///none"],
    "top": ["top", "localhost:1", "--once"],
}
OF_FILES: Final = {
    "explain": ["explain", "/a.B/C", "--target", "xds:///api", "--config", "{mesh}"],
    "lint": ["lint", "{mesh}"],
    "lint bad": ["lint", "{bad}", "--for", "grpcio", "--for", "envoy"],
    "serve": ["serve", "--once-check", "{directory}"],
    "simulate": ["simulate", "{mesh}", *SIMULATE],
    "simulate bad": ["simulate", "{bad}", *SIMULATE],
    "diff": ["diff", "{mesh}", "{bad}"],
}


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("arguments", OF_A_PROCESS.values(), ids=OF_A_PROCESS)
@pytest.mark.usefixtures("process")
def test_command_prints_no_control_character_of_a_process(
    arguments: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_printable([*_with_path(arguments), "-o", output], capsys)


@pytest.mark.parametrize(
    "arguments", [["status", "localhost:1", "--contents"], ["expand", "{mesh}"]]
)
@pytest.mark.usefixtures("process")
def test_contents_of_resources_have_no_control_character(
    arguments: list[str], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [each.format(mesh=files / "mesh.json") for each in arguments]
    expect_printable([*filled, "-o", "json"], capsys)
    if "expand" in filled:
        expect_printable(filled, capsys)


@pytest.mark.usefixtures("process")
def test_explanation_of_a_process_has_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is a text of several lines, so the process may choose those."""
    main(["explain", "/a.B/C", "--live", "localhost:1"])
    out, err = capsys.readouterr()
    assert "".join((out + err).split("\n")).isprintable()


def _with_path(arguments: list[str]) -> list[str]:
    return ["/other/x" if each == "/other" else each for each in arguments]


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("arguments", OF_FILES.values(), ids=OF_FILES)
def test_command_prints_no_control_character_of_files(
    arguments: list[str], output: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"mesh": files / "mesh.json", "bad": files / "bad.json", "directory": files}
    filled = [each.format(**paths) for each in arguments]
    expect_printable(filled + ([] if "serve" in filled else ["-o", output]), capsys)


def expect_printable(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(arguments)
    out, err = capsys.readouterr()
    assert_printable(out + err)
    if out and arguments[-1] == "json" and code == 0:
        json.loads(out)


def test_table_on_a_terminal_has_only_its_own_escape_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("a", "b"), [(HOSTILE, "bad")], styles={"bad": "red"})
    assert MARKUP.search(terminal.getvalue())
    assert_printable(MARKUP.sub("", terminal.getvalue()))


def test_unknown_arguments_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", "localhost:1", "--no-such", HOSTILE])
    assert_printable(capsys.readouterr().err)


def test_commands_print_only_through_the_module_that_escapes() -> None:
    """Other calls of `print` have no text of others: their arguments are checked here."""
    allowed = {
        "'proxyless: interrupted'",
        "f'proxyless: {package} is not installed, wanted: {wanted}'",
        "f'proxyless: {_one_line(str(error))}'",
        "text",  # The progress of `simulate`.
        # `call`: bytes as text, and JSON that is escaped. `completion`: our own script.
        "response.hex() if is_hex else base64.b64encode(response).decode()",
        "escape_json(schema.decode_response(response))",
        "_SCRIPTS[parsed.shell](describe_commands())",
        "escape_json(json.dumps(document, ensure_ascii=False))",  # `top` in a pipe.
    }
    assert set(_printed(Path(proxyless.cli.__file__).parent)) == allowed


def _printed(package: Path) -> Iterator[str]:
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "output.py" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                yield ast.unparse(node.args[0])


# serve: the log, and what is kept of clients


class Served:
    """One client of `serve`, and the log."""

    def __init__(self) -> None:
        self.log = io.StringIO()
        self.nacks: deque[Any] = deque(maxlen=1_000)
        trace = Trace()
        trace.subscribe(_log_event)
        self.stream = AdsStream(is_paced=False, on_nack=self.nacks.append, trace=trace)
        self.versions = 0
        self.nonce = ""

    def push(self) -> None:
        self.versions += 1
        cluster = eds_cluster("a")
        cluster.alt_stat_name = str(self.versions)
        snapshot = Snapshot.of([cluster], version=str(self.versions), partial=True)
        responses = self.stream.on_snapshot(snapshot)
        self.nonce = responses[-1].nonce if responses else self.nonce

    def request(self, **fields: Any) -> None:  # noqa: ANN401 - of the message
        for response in self.stream.on_request(message_class(REQUEST)(**fields)):
            self.nonce = response.nonce

    def nack(self, text: str) -> None:
        error = {"message": text, "code": 3}
        self.request(type_url=CLUSTER, response_nonce=self.nonce, error_detail=error)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served()
    handler = logging.StreamHandler(made.log)
    handler.setFormatter(OneLineFormatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("proxyless.serve")
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.addHandler(handler)
    yield made
    logger.removeHandler(handler)


def test_nack_is_one_short_line_of_the_log(served: Served) -> None:
    """Unbounded, one NACK would write 3 MB, with a forged line and escape codes."""
    served.push()
    served.request(type_url=CLUSTER, node={"id": f"node {HOSTILE}"})
    served.nack(HOSTILE * 5_000)
    lines = served.log.getvalue().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["WARNING"]
    assert_printable(served.log.getvalue())
    assert len(served.log.getvalue()) <= TEXT_LENGTH_MAX + len("WARNING \n")


def test_kept_nacks_are_small(served: Served) -> None:
    """Unbounded, 1,000 texts of 4 MB would be kept."""
    served.push()
    served.request(type_url=CLUSTER, node={"id": "n" * 100_000})
    for _ in range(50):
        served.nack("\x1b" * 1_000_000)
        served.push()
    assert len(served.nacks) == 50
    for nack in served.nacks:
        assert len(nack.message) <= TEXT_LENGTH_MAX
        assert len(nack.node_id) <= 200
        assert str(nack).isprintable()


def _many_names(served: Served) -> None:
    for number in range(TYPES_MAX):
        names = [f"{number}-{each:06}" for each in range(100_000)]
        served.request(type_url=f"type-{number}", resource_names=names)


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        (
            f"node has .* bytes, wanted at most {NODE_BYTES_MAX}",
            lambda served: served.request(type_url="t", node={"id": "x" * NODE_BYTES_MAX}),
        ),
        (
            f"type_url has .* characters, wanted at most {TYPE_URL_LENGTH_MAX}",
            lambda served: served.request(type_url="t" * (TYPE_URL_LENGTH_MAX + 1)),
        ),
        (f"subscribes to .* bytes of names, wanted at most {SUBSCRIPTION_BYTES_MAX}", _many_names),
    ],
    ids=["node", "type", "names"],
)
def test_client_that_would_be_held_is_rejected(
    served: Served, text: str, attack: Callable[[Served], None]
) -> None:
    with pytest.raises(RequestRefused, match=text):
        attack(served)


def test_names_that_are_replaced_do_not_count(served: Served) -> None:
    for number in range(10):
        names = [f"{number}-{each:06}" for each in range(100_000)]
        served.request(type_url=CLUSTER, resource_names=names)
