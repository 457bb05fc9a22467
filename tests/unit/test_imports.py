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


def test_every_lazy_name_is_exported_to_type_checkers() -> None:
    # Others are private for a type checker: those that are not in __all__, and have no alias.
    tree = ast.parse(Path(proxyless.__file__).read_text(encoding="utf-8"))
    [block, _] = (each for each in tree.body if isinstance(each, ast.If))
    imported = [
        name for each in ast.walk(block) if isinstance(each, ast.ImportFrom) for name in each.names
    ]
    private = {name.name for name in imported if name.asname is None} - {*proxyless.__all__}
    assert not private
    assert {name.name for name in imported} >= {"admin", "aio", "otel"}
