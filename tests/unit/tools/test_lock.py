"""Unit tests of `tools.lock`."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tools.lock import CONSTRAINTS, HEADER, format_constraints

ROOT = Path(__file__).parents[3]


def locked_versions() -> dict[str, str]:
    lines = CONSTRAINTS.read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {name.lower().replace("_", "-"): number for name, number in pairs}


def test_constraints_leave_out_this_package() -> None:
    frozen = "Zope==1\nproxyless @ file:///work\nattrs==2\n"
    assert format_constraints(frozen) == HEADER + "attrs==2\nZope==1\n"


def test_every_requirement_is_locked_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    texts = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    texts += [text for extra in extras for text in extra if not text.startswith("proxyless")]
    locked = locked_versions()
    for requirement in map(Requirement, texts):
        number = locked[requirement.name.lower()]
        assert requirement.specifier.contains(number), requirement
