"""Runs the first hour of a new user in a new environment, and writes docs/first-hour.md.

    python -m tools.first_hour            # Needs a package index, and takes a minute or two.

It builds the wheel, installs it with the extra `cli`, and runs each command as a process: those
that `proxyless init` prints, a canary, a failover, and one mistake of each kind. A mistake has to
end within the deadline of the RPC, in one line with its cause and the next command, which is run,
too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic  # noqa: TID251 - processes take real time
from typing import TYPE_CHECKING, Final

from tests.certificates import CertificateAuthority
from tests.worlds.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "first-hour.md"
# Of the RPCs in client.py.
DEADLINE_S: Final = 5.0
# Of a process, until it sends its first RPC, on a busy machine.
START_MAX_S: Final = 20.0
PATIENCE_S: Final = 120.0
# Ports in the files of `proxyless init`. The ones that are used may not be free.
CONTROL_PLANE_PORT: Final = "18000"
PORTS: Final = (CONTROL_PLANE_PORT, "50061", "50062", "50063")

INTRODUCTION: Final = """\
# The first hour

What a new user types, and what the commands answer: `make first-hour` runs it in a new environment,
and writes this page. Times are those of one run on a machine with two cores. Of longer outputs one
line is shown.
"""
MESH_HEADING: Final = """
## A mesh, a canary, a failover

"""
MISTAKES_HEADING: Final = """
## Mistakes

Each ends within the deadline of the RPC, 5 s, in one line that names the cause and the next command
to run.

"""

_TYPES: Final = "type.googleapis.com/envoy"
_FILTERS: Final = f"{_TYPES}.extensions.filters"
NO_ROUTES: Final = f"""\
"@type": {_TYPES}.config.listener.v3.Listener
name: orders
api_listener:
  api_listener:
    "@type": {_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager
    route_config: {{name: orders-routes}}
    http_filters:
    - name: router
      typed_config: {{"@type": {_FILTERS}.http.router.v3.Router}}
"""
SECURED: Final = """\
service: orders
routes:
- {to: orders, timeout: 2s}
clusters:
  orders:
    endpoints: [127.0.0.1:50061]
    tls: {roots: workload, names: [orders.example]}
"""


class FirstHourError(Exception):
    """A command has not done what this tool expects of it."""


@dataclass(frozen=True)
class Step:
    """A command, its time, and one line of its output; `change` is what was edited before it."""

    command: str
    seconds: float
    answer: str
    change: str = ""


@dataclass(frozen=True)
class Mistake:
    """A change of the files, and the cause that the error has to name."""

    change: str
    cause: str
    # Texts of client.py, and their replacements.
    edits: Mapping[str, str] = field(default_factory=dict)
    # The directory that the control plane serves; none is running without it.
    mesh: str = "mesh"
    # The program of the backends, and its arguments; none is running without it.
    backends: str = ""


MISTAKES: Final = (
    Mistake(
        "a typo in client.py: xds:///order",
        'listener "order"',
        {"xds:///orders": "xds:///order"},
        backends="backends.py",
    ),
    Mistake("no control plane is running", "connection refused", mesh="", backends="backends.py"),
    Mistake(
        "no bootstrap: client.py without bootstrap=, and no GRPC_XDS_BOOTSTRAP",
        "xds bootstrap is missing",
        {", bootstrap=BOOTSTRAP": ""},
    ),
    Mistake("no backend is running", "connection refused"),
    Mistake("a listener without routes", "has no virtual host", mesh="no-routes"),
    Mistake(
        "a backend with the certificate of another name",
        "server is DNS 'other.example', wanted exact 'orders.example'",
        {
            'insecure_channel("xds:///orders"': (
                'secure_channel("xds:///orders", proxyless.xds_channel_credentials('
                "proxyless.ssl_channel_credentials())"
            )
        },
        mesh="secured",
        backends="secured_backends.py a",
    ),
)


class Terminals:
    """Runs commands of one environment in one directory, and lists them with their times."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory
        self.steps: list[Step] = []
        self.ports = {port: str(free_port()) for port in PORTS}
        left_out = ("PYTHON", "GRPC_XDS_BOOTSTRAP")
        inherited = {key: text for key, text in os.environ.items() if not key.startswith(left_out)}
        self._environ = {
            **inherited,
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def run(self, command: str, *, line: int = 0, code: int = 0, change: str = "") -> str:
        """Run a command to its end; returns the output. Raises if it ends with another code."""
        began_s = monotonic()
        done = run_process(command, self.directory, self._environ)
        output = self.shown(done.stdout + done.stderr)
        if done.returncode != code:
            raise FirstHourError(f"{command}: exit code {done.returncode}: {output}")
        answer = output.strip().splitlines()[line]
        self.steps.append(Step(self.shown(command), monotonic() - began_s, answer, change))
        return output

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Run a command in the background, from its first line on."""
        began_s = monotonic()
        with (
            (self.directory / "background.log").open("a") as log,
            subprocess.Popen(
                split_command(command, self._environ),
                cwd=self.directory,
                env=self._environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None, "a pipe"
            try:
                answer = self.shown(process.stdout.readline().strip())
                if not answer:
                    raise FirstHourError(f"{command} has ended")
                self.steps.append(Step(self.shown(command), monotonic() - began_s, answer))
                yield
            finally:
                process.kill()

    def run_client_until(self, backends: set[str], change: str = "") -> None:
        """Run the client until these backends answer, and no others; lists the last run."""
        end_s = monotonic() + PATIENCE_S
        while True:
            output = self.run("python client.py", change=change)
            if backends == (found := set(re.findall(r"'(\w+)': \d+", output))):
                return
            self.steps.pop()
            if monotonic() > end_s:
                raise FirstHourError(f"{sorted(found)} answered, wanted {sorted(backends)}")

    def make_mistake(self, mistake: Mistake) -> None:
        """Run the client with a mistake, and the command that its error names."""
        self.change("client.py", {}, to="client.py.before")
        self.change("client.py", mistake.edits)
        began_s = monotonic()
        done = run_process("python client.py", self.directory, self._environ)
        step = Step(
            "python client.py",
            monotonic() - began_s,
            self.shown(done.stdout + done.stderr).strip(),
            mistake.change,
        )
        self.change("client.py.before", {}, to="client.py")
        self.steps.append(step)
        command = check_mistake(step, mistake.cause)
        if command == "proxyless init DIR":
            self.run("proxyless init another")
        elif mistake.cause not in self.run(command, code=1).partition("\n")[0]:
            raise FirstHourError(f"{command} does not name {mistake.cause!r}: {self.steps[-1]}")

    def change(self, name: str, edits: Mapping[str, str], to: str = "") -> None:
        """Replace texts of a file, or of a copy of it."""
        text = (self.directory / name).read_text()
        for old, new in edits.items():
            if old not in text:
                raise FirstHourError(f"{name} does not have {old!r}")
            text = text.replace(old, new)
        (self.directory / (to or name)).write_text(text)

    def shown(self, text: str) -> str:
        """The text with the ports of `proxyless init`, and paths in the directory."""
        for port, used in self.ports.items():
            text = text.replace(used, port)
        text = text.replace(f"{self.directory}{os.sep}", "")
        return text.replace(f" --listen 127.0.0.1:{CONTROL_PLANE_PORT}", "")


def split_command(command: str, environ: Mapping[str, str]) -> list[str]:
    """Program and arguments; the program of the environment's PATH."""
    program, *arguments = shlex.split(command)
    return [shutil.which(program, path=environ["PATH"]) or program, *arguments]


def run_process(
    command: str, directory: Path, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        split_command(command, environ),
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def check_mistake(step: Step, cause: str) -> str:
    """The next command, which the answer names. Raises if that, or anything else, is missing."""
    if "\n" in step.answer:
        raise FirstHourError(f"{step.change}: wanted one line, got: {step.answer}")
    if cause not in step.answer:
        raise FirstHourError(f"{step.change}: wanted the cause {cause!r}, got: {step.answer}")
    if step.seconds > DEADLINE_S + START_MAX_S:
        raise FirstHourError(f"{step.change}: ended after {step.seconds:.1f} s: {step.answer}")
    found = re.search(r"; see: (proxyless .+)$", step.answer)
    if found is None:
        raise FirstHourError(f"{step.change}: wanted the next command, got: {step.answer}")
    return found[1]


def use_mesh(terminals: Terminals) -> str:
    """Make a mesh, run it, change a canary, lose a zone; returns the output of `init`."""
    address = f"127.0.0.1:{terminals.ports[CONTROL_PLANE_PORT]}"
    printed = terminals.run(f"proxyless init . --listen {address}")
    backends = {port: terminals.ports[port] for port in PORTS[1:]}
    terminals.change("mesh/orders.yaml", backends)
    terminals.change("backends.py", backends)
    terminals.run("proxyless lint mesh --strict", line=-1)
    terminals.run("proxyless simulate mesh --script outage.yaml", line=-1)
    with ExitStack() as stack:
        stack.enter_context(terminals.running(f"proxyless serve mesh --listen {address}"))
        zone_a = stack.enter_context(ExitStack())
        zone_a.enter_context(terminals.running("python backends.py a"))
        stack.enter_context(terminals.running("python backends.py b canary"))
        terminals.run_client_until({"a", "canary"})
        where = "--target xds:///orders --bootstrap bootstrap.json"
        terminals.run(f"proxyless explain shop.Orders/Get {where}")

        weights = "orders: 90, canary: 10", "orders: 0, canary: 1"
        terminals.change("mesh/orders.yaml", {}, to="before.yaml")
        terminals.change("mesh/orders.yaml", dict([weights]))
        terminals.run("proxyless diff before.yaml mesh", change="all RPCs to the canary")
        terminals.run_client_until({"canary"})

        terminals.change("before.yaml", {}, to="mesh/orders.yaml")
        terminals.run_client_until({"a", "canary"}, "the weights as before")
        zone_a.close()
        terminals.run_client_until({"b", "canary"}, "zone a is killed")
    return printed


def make_mistakes(terminals: Terminals, mistakes: Sequence[Mistake] = MISTAKES) -> None:
    """Make each mistake in the files of `use_mesh`, with what it needs running."""
    _write_meshes_of_mistakes(terminals)
    address = f"127.0.0.1:{terminals.ports[CONTROL_PLANE_PORT]}"
    for mistake in mistakes:
        with ExitStack() as stack:
            kept = len(terminals.steps)
            if mistake.mesh:
                command = f"proxyless serve {mistake.mesh} --listen {address}"
                stack.enter_context(terminals.running(command))
            if mistake.backends:
                stack.enter_context(terminals.running(f"python {mistake.backends}"))
            # The steps before the mistake are those of every mistake.
            del terminals.steps[kept:]
            terminals.make_mistake(mistake)


def _write_meshes_of_mistakes(terminals: Terminals) -> None:
    directory = terminals.directory
    for name, text in (("no-routes", NO_ROUTES), ("secured", SECURED)):
        (directory / name).mkdir()
        (directory / name / "orders.yaml").write_text(text)
    terminals.change("secured/orders.yaml", {"50061": terminals.ports["50061"]})
    authority = CertificateAuthority()
    certificate, key = authority.issue(["other.example"])
    for name, content in (
        ("ca.pem", authority.certificate_pem),
        ("server.pem", certificate),
        ("server.key", key),
    ):
        (directory / name).write_bytes(content)
    insecure = 'server.add_insecure_port(f"127.0.0.1:{port}")'
    files = 'Path("server.key").read_bytes(), Path("server.pem").read_bytes()'
    secure = f'f"127.0.0.1:{{port}}", grpc.ssl_server_credentials([({files})])'
    edits = {
        insecure: f"server.add_secure_port({secure})",
        "import sys\n": "import sys\nfrom pathlib import Path\n",
    }
    terminals.change("backends.py", edits, to="secured_backends.py")
    bootstrap = json.loads((directory / "bootstrap.json").read_text())
    files_of_roots = {"ca_certificate_file": "ca.pem"}
    bootstrap["certificate_providers"] = {
        "workload": {"plugin_name": "file_watcher", "config": files_of_roots}
    }
    (directory / "bootstrap.json").write_text(json.dumps(bootstrap))


def build_wheel(directory: Path) -> Path:
    """The wheel of a copy of the sources."""
    source = directory / "source"
    (source / "tools").mkdir(parents=True)
    shutil.copytree(
        ROOT / "src",
        source / "src",
        ignore=shutil.ignore_patterns("__pycache__", "descriptors.pb"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE", "tools/hatch_build.py"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = directory / "wheels"
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, source], check=True)
    [wheel] = wheels.iterdir()
    return wheel


def install(wheel: Path, directory: Path) -> tuple[Path, list[Step]]:
    """A new environment with the wheel; returns the directory of its programs."""
    programs = directory / "environment" / "bin"
    steps = []
    for command, shown in (
        (f"{sys.executable} -m venv environment", "python3 -m venv .venv"),
        (
            f"{programs / 'pip'} install --disable-pip-version-check '{wheel}[cli]'",
            "pip install 'proxyless[cli]'",
        ),
    ):
        began_s = monotonic()
        done = run_process(command, directory, os.environ)
        if done.returncode:
            raise FirstHourError(f"{command}: {done.stdout}{done.stderr}")
        steps.append(Step(shown, monotonic() - began_s, ""))
    return programs, steps


def format_steps(steps: Sequence[Step]) -> str:
    """A block of a page."""
    lines: list[str] = []
    for step in steps:
        if step.change:
            lines += [""] if lines else []
            lines.append(f"# {step.change}")
        lines.append(f"$ {step.command}  ({step.seconds:.1f} s)")
        lines += [step.answer] if step.answer else []
    return "\n".join(["```text", *lines, "```\n"])


def format_page(mesh: Sequence[Step], mistakes: Sequence[Step]) -> str:
    return "".join(
        (INTRODUCTION, MESH_HEADING, format_steps(mesh), MISTAKES_HEADING, format_steps(mistakes))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--print", action="store_true", help="print the page; do not write it")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "shop").mkdir()
        try:
            programs, installed = install(build_wheel(directory), directory)
            terminals = Terminals(directory / "shop", programs)
            use_mesh(terminals)
            mesh, terminals.steps = [*installed, *terminals.steps], []
            make_mistakes(terminals)
        except FirstHourError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    page = format_page(mesh, terminals.steps)
    if options.print:
        print(page)
    else:
        PAGE.write_text(page)
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
