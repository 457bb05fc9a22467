"""What is a finding about a resource: where, how bad, and for whom?"""

from __future__ import annotations

from enum import Enum

from proxyless.base.frozen import frozen


class Severity(Enum):
    """How bad it is."""

    # The client refuses the resource, or cannot use what it names.
    ERROR = "error"
    # It is taken, but does not do what it says.
    WARNING = "warning"
    # Worth knowing: it does what it says here, or nobody would miss it.
    NOTE = "note"


class Audience(Enum):
    """Whose behaviour is described."""

    PROXYLESS = "proxyless"
    GRPCIO = "grpcio"
    ENVOY = "envoy"


@frozen
class Finding:
    """One thing about one field."""

    severity: Severity
    # From the resource down, as in a NACK; empty for the resource as a whole.
    path: str
    text: str
    audience: Audience = Audience.PROXYLESS
