"""Packages that exist only for a test: their modules, and the metadata that names entry points."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

import pytest

from proxyless import installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Install(Protocol):
    """Puts a package of one module where Python looks for packages."""

    def __call__(self, name: str, entry_points: str, module: str) -> None: ...


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    """Ends with the test, as does all that was imported from there."""
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def install(name: str, entry_points: str, module: str) -> None:
            place: Path = tmp_path_factory.mktemp(name)
            metadata = place / f"{name}-1.0.dist-info"
            metadata.mkdir()
            named = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            (metadata / "METADATA").write_text(named)
            (metadata / "entry_points.txt").write_text(entry_points)
            (place / f"{name}.py").write_text(module)
            patch.syspath_prepend(place)
            names.append(name)
            installed.forget_packages()

        yield install
    installed.forget_packages()
    for name in names:
        sys.modules.pop(name, None)
