"""Lint of one resource: what this client, grpcio and Envoy reject, ignore or interpret differently.

Findings come from the parsers (errors, by the path of a NACK), from fields that no parser reads
(`parsed_fields`) and from `lint_rules`. The command `lint` reads files and checks references.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.observe.lint_istio import ISTIO_RULES, describe_setting
from proxyless.observe.lint_rules import RULES
from proxyless.observe.parsed_fields import OPAQUE_FIELDS, PARSED_FIELDS, describe_ignored
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.view import message_parsers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import Descriptor

    from proxyless.lb import PolicyRegistry
    from proxyless.xds.view import FilterRegistry, Parse

_ANY: Final = "google.protobuf.Any"


class _EveryName(dict[str, Any]):
    """Certificate providers of an unknown bootstrap: every name exists."""

    def __contains__(self, key: object) -> bool:
        return True


@frozen
class LintContext:
    """Registries and bootstrap of the client."""

    policies: PolicyRegistry
    filters: FilterRegistry
    # None: every certificate provider exists.
    bootstrap: Bootstrap | None = None

    def parsers(self) -> Mapping[str, Parse]:
        bootstrap = self.bootstrap or unknown_bootstrap()
        return message_parsers(self.policies, self.filters, bootstrap)


def unknown_bootstrap() -> Bootstrap:
    """Bootstrap for resources without one: every certificate provider exists."""
    server = ServerConfig("unknown", ChannelCreds("insecure"))
    return Bootstrap(servers=(server,), certificate_providers=_EveryName())


def lint_message(
    message: Proto, context: LintContext, audiences: frozenset[Audience] = frozenset()
) -> list[Finding]:
    """All findings about one resource, for proxyless and these audiences."""
    rejections = list(_find_rejections(message, context))
    # A rejected field is not reported as ignored as well; its setting in Istio is.
    rejected = {each.path for each in rejections if each.severity is Severity.ERROR}
    remarks = (
        each
        for each in _walk(message, "")
        if each.path not in rejected or each.audience is Audience.ISTIO
    )
    shown = {Audience.PROXYLESS, *audiences}
    return [each for each in (*rejections, *remarks) if each.audience in shown]


def _find_rejections(message: Proto, context: LintContext) -> Iterator[Finding]:
    name = message.DESCRIPTOR.full_name
    parse = context.parsers().get(name)
    if parse is None:
        yield Finding(Severity.NOTE, "", f"is a {name}, which this client never requests")
        return
    errors = ValidationErrors()
    parse(message, errors)
    for path, text in errors.items():
        yield Finding(Severity.ERROR, path, text, rule="rejected")


def _walk(message: Proto, path: str) -> Iterator[Finding]:
    """Findings about this message and about the parsed messages in it."""
    name = message.DESCRIPTOR.full_name
    for rules in (RULES, ISTIO_RULES):
        rule = rules.get(name)
        for finding in rule(message) if rule is not None else ():
            where = ".".join(filter(None, (path, finding.path)))
            yield replace(finding, path=where)
    known = PARSED_FIELDS.get(name)
    if known is None:
        return
    for field, value in message.ListFields():
        where = f"{path}.{field.name}" if path else field.name
        if field.name not in known:
            severity, text = describe_ignored(name, field.name)
            yield Finding(severity, where, text, rule="ignored")
            if (setting := describe_setting(name, field.name)) is not None:
                yield Finding(Severity.NOTE, where, setting, Audience.ISTIO, rule="ignored")
        elif field.message_type is not None and (name, field.name) not in OPAQUE_FIELDS:
            yield from _walk_field(field.message_type, value, where)


def _walk_field(kind: Descriptor, value: Any, path: str) -> Iterator[Finding]:  # noqa: ANN401 - a message, a list or a map of them
    if kind.GetOptions().map_entry:
        if kind.fields_by_name["value"].message_type is not None:
            for key, each in value.items():
                yield from _walk_inside(each, f'{path}["{key}"]')
    elif hasattr(value, "DESCRIPTOR"):
        yield from _walk_inside(value, path)
    else:
        for index, each in enumerate(value):
            yield from _walk_inside(each, f"{path}[{index}]")


def _walk_inside(message: Proto, path: str) -> Iterator[Finding]:
    if message.DESCRIPTOR.full_name != _ANY:
        yield from _walk(message, path)
        return
    name = message.type_url.rpartition("/")[2]
    if name not in PARSED_FIELDS:
        return
    try:
        inner = message_class(name).FromString(message.value)
    except DECODE_ERRORS:  # The parsers report it.
        return
    yield from _walk(inner, f'{path}["{name}"]')
