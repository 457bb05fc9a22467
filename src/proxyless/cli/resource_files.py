"""Which resources are in the files that a command was given, and what is wrong with the files?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.files import SUFFIXES, read_bounded, refuse_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from proxyless.base import ValidationErrors
    from proxyless.controlplane import Resource


def read_resources(paths: Iterable[Path], errors: ValidationErrors) -> list[tuple[str, Resource]]:
    """Each resource with its place; of a directory, those of all files below it."""
    located: list[tuple[str, Resource]] = []
    for path in _expand(paths):
        with errors.field(str(path)):
            text = read_bounded(path, errors)
            found = parse_documents(text, errors, is_json=path.suffix == ".json")
        located += [(f"{path}{place}", resource) for place, resource in found]
    kept = set(map(id, refuse_duplicates(located, errors)))
    return [(place, resource) for place, resource in located if id(resource) in kept]


def _expand(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for below in sorted(path.rglob("*")):
            is_hidden = any(part.startswith(".") for part in below.relative_to(path).parts)
            if below.suffix in SUFFIXES and not is_hidden:
                yield below
