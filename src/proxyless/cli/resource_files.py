"""Resources of the files that a command is given, and the errors of these files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.controlplane import Snapshot
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.files import list_files, read_bounded, reject_duplicates

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.controlplane import Resource

    # Place in a file, and the resource there.
    Located = tuple[str, Resource]

STDIN: Final = Path("/dev/stdin")
_STDIN_ARGUMENT: Final = Path("-")


def add_files_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a file, a directory of files, or - for standard input",
    )


def read_resources(
    paths: Sequence[Path],
    errors: ValidationErrors,
    *,
    may_be_empty: bool = False,
    texts: dict[str, str] | None = None,
) -> list[Located]:
    """Read each resource with its place, of a directory those in all files below it.

    Paths without any resource are an error, unless `may_be_empty`: one may be mistyped. The text of
    each file is put into `texts`.
    """
    located: list[Located] = []
    for path in _expand(paths, errors):
        with errors.field(str(path)):
            text = read_bounded(STDIN if path == _STDIN_ARGUMENT else path, errors)
            if texts is not None:
                texts[str(path)] = text
            found = parse_documents(text, errors, is_json=path.suffix == ".json")
        located += [(f"{path}{place}", resource) for place, resource in found]
    if not located and errors.ok and not may_be_empty:
        with errors.field(", ".join(map(str, paths))):
            errors.add("has no resources")
    kept = set(map(id, reject_duplicates(located, errors)))
    return [(place, resource) for place, resource in located if id(resource) in kept]


def find_dangling(located: Sequence[Located]) -> Iterator[tuple[str, Resource, str, str]]:
    """References to resources that are not there: place and resource, field, and error text."""
    snapshot = Snapshot.of([resource for _, resource in located], partial=True)
    for place, resource in located:
        for reference in snapshot.find_dangling(resource):
            yield place, resource, reference.path, reference.missing_text


def describe_errors(errors: ValidationErrors, context: str = "") -> list[str]:
    """One line per error: context, path, text."""
    return [": ".join(filter(None, (context, place, text))) for place, text in errors.items()]


def _expand(paths: Iterable[Path], errors: ValidationErrors) -> Iterator[Path]:
    """All files of directories. Other paths may be pipes, as with `<(kubectl …)`."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        with errors.field(str(path)):
            found = list_files(path, errors)
        for below in found:
            if below.is_fifo():
                # Opening it would block until a process writes to it.
                with errors.field(str(below)):
                    errors.add("is not a file")
            else:
                yield below
