"""Which resources are in the files that a command was given, and what is wrong with the files?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.files import list_files, read_bounded, refuse_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from proxyless.base import ValidationErrors
    from proxyless.controlplane import Resource


def read_resources(paths: Iterable[Path], errors: ValidationErrors) -> list[tuple[str, Resource]]:
    """Each resource with its place; of a directory, those of all files below it."""
    located: list[tuple[str, Resource]] = []
    for path in _expand(paths, errors):
        with errors.field(str(path)):
            text = read_bounded(path, errors)
            found = parse_documents(text, errors, is_json=path.suffix == ".json")
        located += [(f"{path}{place}", resource) for place, resource in found]
    kept = set(map(id, refuse_duplicates(located, errors)))
    return [(place, resource) for place, resource in located if id(resource) in kept]


def describe_errors(errors: ValidationErrors, context: str = "") -> list[str]:
    """A line for each: where, and what is wrong there."""
    return [": ".join(filter(None, (context, place, text))) for place, text in errors.items()]


def _expand(paths: Iterable[Path], errors: ValidationErrors) -> Iterator[Path]:
    """What is named is read, whatever it is: `<(kubectl …)` is a pipe. In a directory, files."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        with errors.field(str(path)):
            found = list_files(path, errors)
        for below in found:
            if below.is_fifo():
                # Whoever opens a pipe waits until somebody writes to it.
                with errors.field(str(below)):
                    errors.add("is no file")
            else:
                yield below
