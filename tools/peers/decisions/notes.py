"""Explanations of outcomes that differ from ours: by case, then by outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTES: Final[Mapping[str, Mapping[str, str]]] = {}
