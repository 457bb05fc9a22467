"""Custom label of RPCs: a metric label whose value the application chooses per RPC.

Specs: A108.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

CUSTOM_LABEL: Final = ContextVar("proxyless_custom_label", default="")


@contextmanager
def custom_label(value: str) -> Iterator[None]:
    """Label the RPCs that are started inside: the value of `grpc.client.call.custom`.

    It counts for the current thread or task and for tasks that it creates. A plugin records it if
    the optional label is enabled. Each value is a time series, so there should be few.
    """
    if not isinstance(value, str):
        raise TypeError(f"custom label is {value!r}, wanted a string")
    token = CUSTOM_LABEL.set(value)
    try:
        yield
    finally:
        CUSTOM_LABEL.reset(token)
