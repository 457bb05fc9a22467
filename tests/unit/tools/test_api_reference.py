"""Unit tests of tools.api_reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import api_reference
from tools.api_reference import read_module, render_module, stale_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPORTS = '''
"""A package.

inner  the other module, whose description
       is longer

The last paragraph.
"""

from furniture.inner import LIMIT, Colour, Thing, make
from furniture import api

__all__ = ["LIMIT", "Colour", "Thing", "api", "make"]
'''
INNER = '''
"""Inside."""

# ------------------------------------------------------------------------------

# How many there may be,
# at most.
LIMIT: Final = 3


def make(
    name: str,
    colour: Colour = Colour.RED,
    *,
    sizes: Mapping[str, int] | None = None,
    is_new: bool = False
) -> Thing:
    """Make one.

    thing = make("chair")
    """


class Colour(Enum):
    """What it looks like."""

    RED = "red"


class Movable:
    """Not exported; its methods are shown with its subclasses."""

    async def move(self, to: str = "here") -> None: ...


@dataclass(frozen=True)
class Thing(Movable):
    """Something."""

    # As people call it.
    name: str
    _secret: int = 0

    @property
    def size(self) -> int:
        """In metres."""

    def _hide(self) -> None: ...
'''


PAGE = """# furniture

A package.

The last paragraph.

## api

A module: [furniture.api](furniture.api.md).

## Colour

```python
class Colour(Enum)
```

What it looks like.

- `RED = 'red'`

## LIMIT

```python
LIMIT: Final = 3
```

How many there may be, at most.

## make

```python
def make(
    name: str,
    colour: Colour = Colour.RED,
    *,
    sizes: Mapping[str, int] | None = None,
    is_new: bool = False,
) -> Thing
```

Make one.

```python
thing = make("chair")
```

## Thing

```python
@dataclass(frozen=True)
class Thing(Movable)
```

Something.

- `name: str`: As people call it.

```python
@property
def size(self) -> int
```

In metres.

```python
async def move(self, to: str = 'here') -> None
```
"""


@pytest.fixture
def furniture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(api_reference, "SOURCE", tmp_path)
    monkeypatch.setattr(api_reference, "PUBLIC_MODULES", {"furniture": "a package"})
    read_module.cache_clear()
    (tmp_path / "furniture").mkdir()
    (tmp_path / "furniture" / "__init__.py").write_text(EXPORTS)
    (tmp_path / "furniture" / "inner.py").write_text(INNER)
    (tmp_path / "furniture" / "api.py").write_text('"""Dark."""\n')
    yield tmp_path
    read_module.cache_clear()


@pytest.mark.usefixtures("furniture")
def test_page_has_all_exports_of_its_module() -> None:
    assert render_module("furniture") == PAGE


def test_page_is_stale_when_it_differs(furniture: Path) -> None:
    pages = furniture / "pages"
    pages.mkdir()
    assert stale_pages(pages) == ["README.md", "furniture.md"]
    for name, text in api_reference.render_all().items():
        (pages / name).write_text(text)
    assert stale_pages(pages) == []
    (pages / "extra.md").write_text("")
    (pages / "furniture.md").write_text("")
    assert stale_pages(pages) == ["extra.md", "furniture.md"]


def test_module_without_exports_is_an_error(furniture: Path) -> None:
    (furniture / "furniture" / "__init__.py").write_text("")
    with pytest.raises(ValueError, match="module 'furniture' has no __all__"):
        render_module("furniture")
