"""Unit tests of proxyless.base.collector."""

import gc
from collections.abc import Iterator

import pytest

from proxyless.base.collector import collection_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector as it was before the test."""
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_collector_is_disabled_in_the_block_only() -> None:
    gc.enable()
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_is_enabled_after_an_error() -> None:
    gc.enable()
    with pytest.raises(ImportError), collection_paused():
        raise ImportError
    assert gc.isenabled()


def test_collector_that_the_application_disabled_stays_disabled() -> None:
    gc.disable()
    with collection_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_pauses_may_be_nested() -> None:
    gc.enable()
    with collection_paused():
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
