"""Finding of lint: a field of a resource, a severity, a text, and the client it is about."""

from __future__ import annotations

from enum import Enum

from proxyless.base.frozen import frozen


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


@frozen
class Finding:
    """One finding about one field."""

    severity: Severity
    # From the resource, as in a NACK; empty for the resource as a whole.
    path: str
    text: str
    audience: Audience = Audience.PROXYLESS
