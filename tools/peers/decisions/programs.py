"""The voices of the table: how each is built and started, and its version."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from tools.envoy_env import CannotInstallError, find_envoy
from tools.peers.build import BUILD, ROOT, UnavailableError, build_go_program, read_go_version, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

OURS: Final = "Proxyless"
ENVOY: Final = "Envoy"
SOURCES: Final = ROOT / "tools" / "peers" / "voices"


@dataclass(frozen=True)
class Program:
    """A built voice."""

    command: Sequence[str]
    version: str
    environment: Mapping[str, str]


def _python(stack: str) -> Program:
    command = [sys.executable, "-m", "tools.peers.clients.voice", stack]
    return Program(command, version(stack), {})


def _go() -> Program:
    binary = build_go_program(SOURCES / "go", "voice-go")
    return Program([str(binary)], read_go_version(SOURCES / "go", "google.golang.org/grpc"), {})


def _java() -> Program:
    """Jars by Maven, and the class by javac."""
    _need("mvn", "javac", "java")
    source = SOURCES / "java"
    pom = (source / "pom.xml").read_text()
    release = re.search(r"<grpc.version>(.*)</grpc.version>", pom)
    assert release is not None
    directory = BUILD / f"java-{release[1]}"
    if not (directory / "lib").exists():
        print("peers: mvn dependency:copy-dependencies", flush=True)
        aside = directory / "lib.new"
        shutil.rmtree(aside, ignore_errors=True)
        maven = ["mvn", "-q", "-B", "-f", str(source / "pom.xml"), "dependency:copy-dependencies"]
        run([*maven, f"-DoutputDirectory={aside}", "-DincludeScope=runtime"])
        aside.rename(directory / "lib")
    path = f"{directory}/lib/*"
    run(["javac", "-cp", path, "-d", str(directory), str(source / "Voice.java")])
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return Program(["java", *quick, "-cp", f"{path}:{directory}", "Voice"], release[1], {})


def _node() -> Program:
    _need("npm", "node")
    source, directory = SOURCES / "node", BUILD / "node"
    names = ("package.json", "package-lock.json")
    texts = {name: (source / name).read_text() for name in names}
    if not all(
        (directory / name).exists() and (directory / name).read_text() == texts[name]
        for name in names
    ):
        print("peers: npm ci", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        aside = BUILD / "node.new"
        aside.mkdir(parents=True, exist_ok=True)
        for name in names:
            (aside / name).write_text(texts[name])
        run(["npm", "ci", "--prefix", str(aside), "--no-audit", "--no-fund", "--ignore-scripts"])
        aside.rename(directory)
    needed = json.loads(texts["package.json"])["dependencies"]
    releases = f"{needed['@grpc/grpc-js']}, xds {needed['@grpc/grpc-js-xds']}"
    environment = {"NODE_PATH": str(directory / "node_modules")}
    return Program(["node", str(source / "voice.js")], releases, environment)


def _envoy() -> Program:
    """Envoy, of which the command is only the binary; its client is ours."""
    try:
        binary: Path = find_envoy()
    except CannotInstallError as error:
        raise UnavailableError(str(error)) from None
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"/(\d+\.\d+\.\d+)/", done.stdout)
    return Program([str(binary)], found[1] if found else "of unknown version", {})


# In the order of the table's columns.
PROGRAMS: Final[Mapping[str, Callable[[], Program]]] = {
    OURS: lambda: _python("proxyless"),
    "C-core (grpcio)": lambda: _python("grpcio"),
    "Go": _go,
    "Java": _java,
    "Node": _node,
    ENVOY: _envoy,
}


def _need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            raise UnavailableError(f"there is no {command} command on the PATH")
