"""Fixture that installs packages with entry points for one test."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

import pytest

from proxyless.entry_points import clear_caches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Install(Protocol):
    """Installs a package of one module."""

    def __call__(self, name: str, entry_points: str, module: str) -> None: ...


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    """Undone after the test, with the modules that were imported from the packages."""
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def install(name: str, entry_points: str, module: str) -> None:
            folder: Path = tmp_path_factory.mktemp(name)
            metadata = folder / f"{name}-1.0.dist-info"
            metadata.mkdir()
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            (metadata / "METADATA").write_text(text)
            (metadata / "entry_points.txt").write_text(entry_points)
            (folder / f"{name}.py").write_text(module)
            patch.syspath_prepend(folder)
            names.append(name)
            clear_caches()

        yield install
    clear_caches()
    for name in names:
        sys.modules.pop(name, None)
