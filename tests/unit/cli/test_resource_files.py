"""Unit tests of proxyless.cli.resource_files."""

from __future__ import annotations

import os
from pathlib import Path

from proxyless.base import ValidationErrors
from proxyless.cli.resource_files import find_dangling, read_resources
from proxyless.controlplane import CLUSTER, eds_cluster
from proxyless.controlplane.resource import Resource


def cluster(name: str) -> str:
    return f'"@type": {CLUSTER}\nname: {name}\n'


def names(errors: ValidationErrors, *paths: Path) -> list[str]:
    return [resource.name for _, resource in read_resources(paths, errors)]


def test_directory_is_expanded_to_the_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.yml").write_text(cluster("b"))
    (tmp_path / "a.yaml").write_text(cluster("a"))
    (tmp_path / ".hidden.yaml").write_text(cluster("h"))
    (tmp_path / "readme.md").write_text("no")
    errors = ValidationErrors()
    assert names(errors, tmp_path) == ["a", "b"]
    assert errors.ok


def test_first_of_two_resources_is_kept_and_errors_have_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(cluster("a"))
    (tmp_path / "b.yaml").write_text(cluster("a"))
    errors = ValidationErrors()
    located = read_resources([tmp_path / "a.yaml", tmp_path / "b.yaml"], errors)
    assert [place for place, _ in located] == [f"{tmp_path}/a.yaml[0]"]
    ((path, text),) = errors.items()
    assert path == f"{tmp_path}/b.yaml[0]"
    assert text.startswith("cluster 'a' is there already")


def test_pipe_in_a_directory_is_an_error(tmp_path: Path) -> None:
    """Reading it could block forever. A pipe as an argument is read: `lint <(generate)`."""
    (tmp_path / "a.yaml").write_text(cluster("a"))
    os.mkfifo(tmp_path / "b.yaml")
    errors = ValidationErrors()
    assert names(errors, tmp_path) == ["a"]
    assert list(errors.items()) == [(f"{tmp_path}/b.yaml", "is not a file")]


def test_pipe_as_argument_is_read() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        stream.write(cluster("a"))
    errors = ValidationErrors()
    assert names(errors, Path(f"/dev/fd/{reading}")) == ["a"]
    os.close(reading)
    assert errors.ok


def test_dangling_reference_has_its_field_when_the_name_has_brackets() -> None:
    resource = Resource.of(eds_cluster('a"].b'))
    ((_, _, field, _),) = find_dangling([("x", resource)])
    assert field == "eds_cluster_config.service_name"
