"""Finding of lint: a field of a resource, a severity, a text, and the client it is about."""

from __future__ import annotations

from enum import Enum
from typing import Final

from proxyless.base.frozen import frozen

# Identifiers of the kinds of findings, with what they are about.
RULES: Final = {
    "file": "a file that cannot be read or parsed",
    "rejected": "a resource that the client rejects",
    "missing": "a reference to a resource that does not exist",
    "ignored": "a field that the client ignores",
    "interpretation": "a field whose effect depends on other fields, or on the client",
    "unused": "a resource that no listener leads to",
    "unreachable-route": "a route behind one that takes all its RPCs",
    "duplicate-domain": "a domain of two virtual hosts",
    "unknown-retry-condition": "a word in retry_on that no client knows",
    "retry-after-timeout": "retries that come after the timeout",
    "session-path": "a session for a path that no route has",
    "unused-filter-config": "a config of a route for a filter that the listener does not have",
    "unhashed": "a route to a ring_hash cluster that hashes nothing",
    "unused-hash": "a hash policy of a route to clusters that do not use it",
    "aggregate-loop": "an aggregate cluster that contains itself",
    "shared-leaf": "a leaf of an aggregate that a route names as well",
    "no-endpoints": "endpoints of which none can be used",
    "few-endpoints": "outlier detection that needs more endpoints than there are",
}


class Severity(Enum):
    """Severity of a finding."""

    # The client rejects the resource, or a referenced resource is missing.
    ERROR = "error"
    # The client accepts the resource, but does not do what the field says.
    WARNING = "warning"
    # The field works as expected, or ignoring it is harmless.
    NOTE = "note"


class Audience(Enum):
    """Client that a finding is about."""

    PROXYLESS = "proxyless"
    GRPCIO = "grpcio"
    ENVOY = "envoy"
    # Not a client: the settings of Istio that a resource was made from.
    ISTIO = "istio"


@frozen
class Finding:
    """One finding about one field."""

    severity: Severity
    # From the resource, as in a NACK; empty for the resource as a whole.
    path: str
    text: str
    audience: Audience = Audience.PROXYLESS
    # A key of `RULES`.
    rule: str = "interpretation"
