"""Unit tests of proxyless.observe.understood: is the table true?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proxyless.xds
from proxyless.observe import Severity
from proxyless.observe.understood import CLUSTER, HARMLESS, SPECIAL, UNDERSTOOD, describe_ignored
from proxyless.protos import message_class

XDS = Path(proxyless.xds.__file__).parent

# Not read, but part of what a parser refuses or skips by the oneof they stand in, or a mere label.
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
# A message that only says which regular expressions are meant; there is one kind.
LABELS = {"google_re2"}


@pytest.mark.parametrize("message", UNDERSTOOD)
def test_every_field_of_the_table_is_one_of_envoys(message: str) -> None:
    known = {field.name for field in message_class(message).DESCRIPTOR.fields}
    assert known >= UNDERSTOOD[message]


def test_every_field_of_the_table_is_named_by_a_parser() -> None:
    sources = [*XDS.glob("parsing/*.py"), *XDS.glob("filters/*.py"), XDS / "proto_fields.py"]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in sources)))
    named = {field for fields in UNDERSTOOD.values() for field in fields}
    assert named - words - BY_ONEOF - LABELS == set()


def test_what_is_special_about_a_field_is_said_of_one_that_is_ignored() -> None:
    for message, field in SPECIAL:
        assert field in message_class(message).DESCRIPTOR.fields_by_name
        assert field not in UNDERSTOOD[message]


def test_ignored_fields_are_told_apart_by_what_is_lost() -> None:
    assert describe_ignored(CLUSTER, "health_checks")[0] is Severity.WARNING
    assert describe_ignored(CLUSTER, "alt_stat_name") == (Severity.NOTE, "is ignored")
    assert "probed" in describe_ignored(CLUSTER, "health_checks")[1]
    assert "health_checks" not in HARMLESS
