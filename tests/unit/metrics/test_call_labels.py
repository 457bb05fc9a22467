"""Unit tests of proxyless.metrics.call_labels."""

import asyncio
from threading import Thread

import pytest

from proxyless.metrics import custom_label
from proxyless.metrics.call_labels import CUSTOM_LABEL


def test_the_label_counts_inside_and_the_previous_one_after() -> None:
    assert CUSTOM_LABEL.get() == ""
    with custom_label("checkout"):
        with custom_label("refund"):
            assert CUSTOM_LABEL.get() == "refund"
        assert CUSTOM_LABEL.get() == "checkout"
    assert CUSTOM_LABEL.get() == ""


def test_the_previous_label_counts_again_after_an_exception() -> None:
    with pytest.raises(LookupError), custom_label("checkout"):
        raise LookupError
    assert CUSTOM_LABEL.get() == ""


async def test_tasks_have_the_label_of_the_task_that_created_them() -> None:
    async def read() -> str:
        return CUSTOM_LABEL.get()

    with custom_label("checkout"):
        task = asyncio.create_task(read())
    assert await task == "checkout"
    assert await asyncio.create_task(read()) == ""


def test_another_thread_does_not_have_the_label() -> None:
    seen: list[str] = []
    with custom_label("checkout"):
        thread = Thread(target=lambda: seen.append(CUSTOM_LABEL.get()))
        thread.start()
        thread.join()
    assert seen == [""]


def test_a_value_that_is_no_string_is_rejected() -> None:
    with pytest.raises(TypeError, match="wanted a string"), custom_label(7):  # type: ignore[arg-type]
        pass
