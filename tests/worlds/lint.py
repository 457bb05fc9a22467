"""Findings of lint about messages, with the registries of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.assembly import Registries
from proxyless.observe import LintContext, Severity, lint_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.observe import Finding
    from proxyless.protos import Proto


def lint_all(messages: Iterable[Proto]) -> list[Finding]:
    """Findings of each message on its own."""
    known = Registries()
    context = LintContext(known.policies, known.filters)
    return [finding for message in messages for finding in lint_message(message, context)]


def lint_errors(messages: Iterable[Proto]) -> list[Finding]:
    """What the client would reject."""
    return [each for each in lint_all(messages) if each.severity is Severity.ERROR]
