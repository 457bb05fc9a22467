"""Places in the files of a command: file, line and column of a field of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane.positions import Position, Positions
from proxyless.controlplane.short_form.places import is_short_place, place_of_field

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class FilePlace:
    """A place in a file; without a position it is the whole file."""

    file: str
    position: Position | None = None
    # Path of the key in a document in the short form; empty for others.
    short_path: str = ""

    def __str__(self) -> str:
        if self.position is None:
            return self.file
        return f"{self.file}:{self.position.line}:{self.position.column}"


class FilePositions:
    """Positions in the texts of files, each parsed at its first use."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts: Final = texts
        self._positions: Final[dict[str, Positions]] = {}

    def find(self, place: str, field: str = "") -> FilePlace:
        """The place of a field of the resource at `place`, as `read_resources` returns it."""
        file, path = self._split(place)
        if file not in self._texts:
            return FilePlace(place)
        if file not in self._positions:
            is_json = file.endswith(".json")
            self._positions[file] = Positions.of(self._texts[file], is_json=is_json)
        inside = place_of_field(path, field)
        shown = inside.partition("].")[2] if is_short_place(path) else ""
        return FilePlace(file, self._positions[file].find(inside), shown)

    def is_short_form(self, place: str) -> bool:
        """Whether the resource at `place` is in the short form."""
        return is_short_place(self._split(place)[1])

    def _split(self, place: str) -> tuple[str, str]:
        """The file and the path in it. A file's name may have brackets."""
        names = (each for each in self._texts if place.startswith(each))
        file = max(names, key=len, default=place)
        return file, place[len(file) :]
