"""How does a room open only as far as somebody goes in?

A room's `__init__` imports what everybody needs. What only some need (a server, the blocking API)
is imported when it is asked for, which makes the start of all other processes faster:

    if TYPE_CHECKING:
        from proxyless.transport.server import Server
    else:
        __getattr__ = open_when_asked(__name__, {"Server": "server"})

Type checkers and `__all__` see no difference.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def open_when_asked(room: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a room: knows in which of its modules each of these names is."""

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{room}.{homes[name]}"), name)
        # From now on it is there, and nobody asks again.
        setattr(sys.modules[room], name, found)
        return found

    return find
