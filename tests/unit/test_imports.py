"""Every module of the package imports: mistakes in lazily imported modules show here."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import proxyless

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(proxyless.__path__, "proxyless.")
    if not module.name.endswith(".__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_module_imports(name: str) -> None:
    importlib.import_module(name)


def test_type_checkers_see_no_function_that_finds_every_name() -> None:
    for path in Path(proxyless.__file__).parent.rglob("__init__.py"):
        # One below `if not TYPE_CHECKING` is not in this list.
        definitions = ast.parse(path.read_text(encoding="utf-8")).body
        names = {each.name for each in definitions if isinstance(each, ast.FunctionDef)}
        assert "__getattr__" not in names, path
