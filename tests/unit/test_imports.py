"""Every module of the package imports: mistakes in lazily imported modules show here."""

import importlib
import pkgutil

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
