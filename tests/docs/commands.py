"""Check of commands that take too long to run: targets and options must exist.

`make TARGET` has to be in the Makefile. Options of a script, or of the script of a target, have to
be in its `--help`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache

from tests.docs.pages import ROOT
from tests.docs.terminals import PageError

# The scripts of targets, which get ARGS.
SCRIPTS = {
    "bench": ("bench/rpc.py",),
    "bench-all": ("-m", "bench.all"),
    "bench-xds": ("bench/rpc.py",),
    "bench-scale": ("bench/scale.py",),
    "conformance": ("-m", "tools.conformance"),
    "sim": ("-m", "tools.simulation"),
}


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    lines = re.findall(r"^([a-z0-9 -]+):", text, re.MULTILINE)
    return {name for line in lines for name in line.split()}


def check_command(text: str) -> None:
    """Raise PageError if a target or an option does not exist."""
    words = shlex.split(text, comments=True)
    if words[0] == "make":
        _check_make(words[1:])
    elif "install" in words:
        _check_extras(words)
    elif "python" in words[0]:
        is_module = words[1] == "-m"
        _check_options(tuple(words[1:3]) if is_module else (words[1],), words[2:])


def _check_make(words: list[str]) -> None:
    targets = [word for word in words if "=" not in word and not word.startswith("-")]
    if unknown := set(targets) - makefile_targets():
        raise PageError(f"make {sorted(unknown)}: there is no such target")
    arguments = [word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")]
    for target in targets:
        if target in SCRIPTS:
            _check_options(SCRIPTS[target], [part for each in arguments for part in each.split()])


def _check_options(script: tuple[str, ...], words: list[str]) -> None:
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    if not options:
        if script[0] != "-m" and not (ROOT / script[0]).exists():
            raise PageError(f"there is no {script[0]}")
        return
    output = help_of(script)
    for option in options:
        if not re.search(rf"{option}\b", output):
            raise PageError(f"{' '.join(script)} has no option {option}: {output}")


@cache
def help_of(script: tuple[str, ...]) -> str:
    done = subprocess.run(
        [sys.executable, *script, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def _check_extras(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words:
        named = re.fullmatch(r"([\w-]+|\.)\[(\w+)\]", word)
        is_ours = named is not None and named[1] in {".", project["name"]}
        if is_ours and named is not None and named[2] not in project["optional-dependencies"]:
            raise PageError(f"there is no extra {named[2]!r}")
