"""What would this client, and others, make of a resource?

Three sources, in this order: what our parsers refuse, by the path of a NACK; fields that are set
and that no parser looks at (`understood`); and what rules say about the rest (`lint_rules`). Pure:
reading files, and checking that resources find each other, are the command's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.observe.lint_rules import RULES
from proxyless.observe.understood import TAKEN_WHOLE, UNDERSTOOD, describe_ignored
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.view import message_parsers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import Descriptor

    from proxyless.lb import PolicyRegistry
    from proxyless.xds.view import FilterRegistry, Parse

_ANY: Final = "google.protobuf.Any"


class _EveryName(dict[str, Any]):
    """Stands for the certificate providers of a bootstrap that nobody has shown us."""

    def __contains__(self, key: object) -> bool:
        return True


@frozen
class LintContext:
    """What a client knows beside the resource."""

    policies: PolicyRegistry
    filters: FilterRegistry
    # None: any certificate provider may be there.
    bootstrap: Bootstrap | None = None

    def parsers(self) -> Mapping[str, Parse]:
        """By type of message, what the client would do with a resource."""
        bootstrap = self.bootstrap or unknown_bootstrap()
        return message_parsers(self.policies, self.filters, bootstrap)


def unknown_bootstrap() -> Bootstrap:
    """For whoever has resources, but no bootstrap: it has whatever resources name."""
    server = ServerConfig("unknown", ChannelCreds("insecure"))
    return Bootstrap(servers=(server,), certificate_providers=_EveryName())


def lint_message(
    message: Proto, context: LintContext, audiences: frozenset[Audience] = frozenset()
) -> list[Finding]:
    """Everything to say about one resource to these audiences; ours is always among them."""
    wanted = {Audience.PROXYLESS, *audiences}
    refusals = list(_refusals(message, context))
    # A field may be refused and ignored: who reads both believes neither.
    refused = {each.path for each in refusals if each.severity is Severity.ERROR}
    remarks = (each for each in _walk(message, "") if each.path not in refused)
    return [each for each in (*refusals, *remarks) if each.audience in wanted]


def _refusals(message: Proto, context: LintContext) -> Iterator[Finding]:
    name = message.DESCRIPTOR.full_name
    parse = context.parsers().get(name)
    if parse is None:
        yield Finding(Severity.NOTE, "", f"is a {name}, which this client never asks for")
        return
    errors = ValidationErrors()
    parse(message, errors)
    for path, text in errors.items():
        yield Finding(Severity.ERROR, path, text)


def _walk(message: Proto, path: str) -> Iterator[Finding]:
    """Everything to say about this message and those inside it that the client takes apart."""
    name = message.DESCRIPTOR.full_name
    rule = RULES.get(name)
    for finding in rule(message) if rule is not None else ():
        where = ".".join(filter(None, (path, finding.path)))
        yield Finding(finding.severity, where, finding.text, finding.audience)
    known = UNDERSTOOD.get(name)
    if known is None:
        return
    for field, value in message.ListFields():
        where = f"{path}.{field.name}" if path else field.name
        if field.name not in known:
            severity, text = describe_ignored(name, field.name)
            yield Finding(severity, where, text)
        elif field.message_type is not None and (name, field.name) not in TAKEN_WHOLE:
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
    if name not in UNDERSTOOD:
        return
    try:
        inner = message_class(name).FromString(message.value)
    except DecodeError:  # The parsers have said so.
        return
    yield from _walk(inner, f'{path}["{name}"]')
