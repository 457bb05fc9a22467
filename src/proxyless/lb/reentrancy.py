"""`Hold`: defers a policy's report while the policy calls its children (see `lb.api`)."""

from collections.abc import Callable
from typing import Final


class Hold:
    """Context manager around calls to children; while `active`, their reports are only recorded.

    After the block, `react` is called once, unless the block raised. Must not be nested.
    """

    __slots__ = ("_react", "active")

    def __init__(self, react: Callable[[], object] | None = None) -> None:
        self._react: Final = react
        self.active = False

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.active = False
        if self._react is not None and error_type is None:
            self._react()
