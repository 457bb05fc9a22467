"""Are signatures, docstrings and comments of what a door exports on its page?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import api_reference
from tools.api_reference import read_module, render_door, stale_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOOR = '''
"""A room.

door  this page
room  the other one, whose description
      is longer

Said of it all.
"""

from house.room import LIMIT, Colour, Thing, make
from house import cellar

__all__ = ["LIMIT", "Colour", "Thing", "cellar", "make"]
'''
ROOM = '''
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
    """Not exported; what it can do is said of those who can."""

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


PAGE = """# house

A room.

Said of it all.

## cellar

A module: [house.cellar](house.cellar.md).

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
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(api_reference, "SOURCE", tmp_path)
    monkeypatch.setattr(api_reference, "DOORS", {"house": "the house"})
    read_module.cache_clear()
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").write_text(DOOR)
    (tmp_path / "house" / "room.py").write_text(ROOM)
    (tmp_path / "house" / "cellar.py").write_text('"""Dark."""\n')
    yield tmp_path
    read_module.cache_clear()


@pytest.mark.usefixtures("house")
def test_a_page_has_what_its_door_exports() -> None:
    assert render_door("house") == PAGE


def test_a_page_is_stale_if_anything_is_different(house: Path) -> None:
    pages = house / "pages"
    pages.mkdir()
    assert stale_pages(pages) == ["README.md", "house.md"]
    for name, text in api_reference.render_all().items():
        (pages / name).write_text(text)
    assert stale_pages(pages) == []
    (pages / "gone.md").write_text("")
    (pages / "house.md").write_text("")
    assert stale_pages(pages) == ["gone.md", "house.md"]


def test_a_door_without_exports_is_refused(house: Path) -> None:
    (house / "house" / "__init__.py").write_text("")
    with pytest.raises(ValueError, match="module 'house' has no __all__"):
        render_door("house")
