"""A room opens only as far as somebody goes in, and looks the same from outside."""

import sys
from types import ModuleType

import pytest

from proxyless.base.lazy_exports import lazy_exports


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    room, home = ModuleType("a_room"), ModuleType("a_room.home")
    home.Thing = type("Thing", (), {})  # type: ignore[attr-defined]
    room.__getattr__ = lazy_exports("a_room", {"Thing": "home"})  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "a_room", room)
    monkeypatch.setitem(sys.modules, "a_room.home", home)
    return room


def test_a_name_is_found_where_it_lives(room: ModuleType) -> None:
    from a_room import Thing  # type: ignore[import-not-found]  # noqa: PLC0415

    assert Thing is sys.modules["a_room.home"].Thing


def test_it_is_looked_for_once(room: ModuleType) -> None:
    found = room.Thing
    del sys.modules["a_room.home"].Thing
    assert room.Thing is found


def test_any_other_name_is_not_there(room: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'a_room' has no attribute 'Other'"):
        _ = room.Other
