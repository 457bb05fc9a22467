"""Lazy exports of a package: names whose module is imported when they are first used.

A package's `__init__` imports what every process needs. What only some need (a server, the
blocking API) is exported lazily, which makes the start of all other processes faster:

    if TYPE_CHECKING:
        from proxyless.transport.server import Server
    else:
        __getattr__ = lazy_exports(__name__, {"Server": "server"})

Type checkers and `__all__` see no difference.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, with the module of each lazily exported name."""

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{modules[name]}"), name)
        # The next use does not call this function.
        setattr(sys.modules[package], name, found)
        return found

    return find
