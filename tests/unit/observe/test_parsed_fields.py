"""Unit tests of proxyless.observe.parsed_fields: the table agrees with the parsers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import proxyless.xds
from proxyless.assembly import Registries
from proxyless.base import ValidationErrors
from proxyless.controlplane import (
    dns_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from proxyless.observe import LintContext, Severity
from proxyless.observe.parsed_fields import (
    CLUSTER,
    HARMLESS,
    IGNORED_FIELD_NOTES,
    PARSED_FIELDS,
    describe_ignored,
)
from proxyless.protos import message_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import FieldDescriptor

    from proxyless.protos import Proto

XDS = Path(proxyless.xds.__file__).parent

# Fields that parsers reject or skip by their oneof, without naming them.
BY_ONEOF = {
    "connection_properties",
    "cookie",
    "config_discovery",
    "connect_matcher",
    "custom",
    "direct_response",
    "envoy_internal_address",
    "filter_action",
    "inline_cluster_specifier_plugin",
    "api_config_source",
    "non_forwarding_action",
    "path_config_source",
    "path_match_policy",
    "path_separated_prefix",
    "query_parameter",
    "pipe",
    "redirect",
    "scoped_routes",
    "cluster_header",
}
# An empty message that selects the only kind of regular expressions.
LABELS = {"google_re2"}


@pytest.mark.parametrize("message", PARSED_FIELDS)
def test_every_field_of_the_table_exists(message: str) -> None:
    known = {field.name for field in message_class(message).DESCRIPTOR.fields}
    assert known >= PARSED_FIELDS[message]


def test_every_field_of_the_table_is_named_by_a_parser() -> None:
    sources = [*XDS.glob("parsing/*.py"), *XDS.glob("filters/*.py")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in sources)))
    named = {field for fields in PARSED_FIELDS.values() for field in fields}
    assert named - words - BY_ONEOF - LABELS == set()


def test_notes_are_about_ignored_fields() -> None:
    for message, field in IGNORED_FIELD_NOTES:
        assert field in message_class(message).DESCRIPTOR.fields_by_name
        assert field not in PARSED_FIELDS[message]


def test_ignored_field_has_a_severity_and_a_note() -> None:
    assert describe_ignored(CLUSTER, "health_checks")[0] is Severity.WARNING
    assert describe_ignored(CLUSTER, "alt_stat_name") == (Severity.NOTE, "is ignored")
    assert "probed" in describe_ignored(CLUSTER, "health_checks")[1]
    assert "health_checks" not in HARMLESS


def parsed(message: Proto) -> tuple[object, str]:
    """The parsed resource, and its errors."""
    known = Registries()
    errors = ValidationErrors()
    parse = LintContext(known.policies, known.filters).parsers()[message.DESCRIPTOR.full_name]
    return parse(message, errors), str(errors)


# By the type of a field: double, float, bool, string, bytes. Others are numbers.
_EXAMPLES: dict[int, object] = {1: 2.0, 2: 2.0, 8: True, 9: "x", 12: b"x"}


def set_something(message: Proto, field: FieldDescriptor) -> bool:
    """Set the field to a value that is not its default; False if that would unset another one."""
    oneof = field.containing_oneof
    if oneof is not None and message.WhichOneof(oneof.name) not in (None, field.name):
        return False
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return False
    if field.message_type is not None:
        (value.add() if hasattr(value, "add") else value).SetInParent()
        return True
    something = _EXAMPLES.get(field.type, 1)
    if hasattr(value, "append"):
        value.append(something)
    else:
        setattr(message, field.name, something)
    return True


def places(message: Proto) -> Iterator[Callable[[Proto], Proto]]:
    """Functions that return each message of the table inside a message, or inside a copy of it."""
    yield lambda whole: whole
    known = PARSED_FIELDS[message.DESCRIPTOR.full_name]
    for field, value in message.ListFields():
        kind = field.message_type
        if field.name not in known or kind is None or kind.full_name not in PARSED_FIELDS:
            continue
        is_list = not hasattr(value, "DESCRIPTOR")
        for inner in places(value[0] if is_list else value):

            def find(
                whole: Proto,
                name: str = field.name,
                is_list: bool = is_list,
                inner: Callable[[Proto], Proto] = inner,
            ) -> Proto:
                found = getattr(whole, name)
                return inner(found[0] if is_list else found)

            yield find


ROUTES = route_config("routes", route(headers={"who": "me"}, weighted={"a": 1, "b": 2}))
BASES = [
    eds_cluster("a"),
    dns_cluster("a", "example", 80),
    ROUTES,
    endpoints("a", ["127.0.0.1:1"]),
    listener("api", "routes"),
]


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.DESCRIPTOR.name)
def test_fields_outside_the_table_have_no_effect(base: Proto) -> None:
    before = parsed(base)
    assert before[1] == "[]"
    tried = 0
    for find in places(base):
        inner = find(base)
        for field in inner.DESCRIPTOR.fields:
            if field.name in PARSED_FIELDS[inner.DESCRIPTOR.full_name]:
                continue
            copy = type(base).FromString(base.SerializeToString())
            if set_something(find(copy), field):
                tried += 1
                assert parsed(copy) == before, field.full_name
    assert tried > 5
