"""The two implementations of grpcio's API that a suite compares: `proxyless` and `grpcio`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

STACKS: Final = ("proxyless", "grpcio")
_MODULES: Final = {"proxyless": "proxyless", "grpcio": "grpc"}

# grpcio's objects, and the generated code.
Untyped: TypeAlias = Any


def load_stack(name: str) -> Untyped:
    """The module of a stack; its attribute `aio` is the asyncio API."""
    import_module(f"{_MODULES[name]}.aio")
    return import_module(_MODULES[name])


def load_modules(directory: Path | str, *names: str) -> list[Untyped]:
    """Modules of a directory; installed modules of the same name take precedence."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    return [import_module(name) for name in names]
