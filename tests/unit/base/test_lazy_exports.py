"""Unit tests of proxyless.base.lazy_exports."""

import sys
from types import ModuleType

import pytest

from proxyless.base.lazy_exports import lazy_exports


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, module = ModuleType("a_package"), ModuleType("a_package.module")
    module.Thing = type("Thing", (), {})  # type: ignore[attr-defined]
    package.__getattr__ = lazy_exports("a_package", {"Thing": "module"})  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "a_package", package)
    monkeypatch.setitem(sys.modules, "a_package.module", module)
    return package


def test_a_lazy_name_is_imported_from_its_module(package: ModuleType) -> None:
    from a_package import Thing  # type: ignore[import-not-found]  # noqa: PLC0415

    assert Thing is sys.modules["a_package.module"].Thing


def test_a_lazy_name_is_looked_up_once(package: ModuleType) -> None:
    found = package.Thing
    del sys.modules["a_package.module"].Thing
    assert package.Thing is found


def test_an_unknown_name_raises_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'a_package' has no attribute 'Other'"):
        _ = package.Other
