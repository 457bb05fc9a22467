"""Config of the stateful session filter: the cookie that keeps a session's RPCs on one backend.

Specs: A55 (the filter and its overrides), A60 (the cookie's value).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import quote
from proxyless.base.frozen import frozen
from proxyless.xds.filters.api import want_message
from proxyless.xds.parsing.proto_fields import decode_any_as, read_duration_s

if TYPE_CHECKING:
    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.runtime import Random
    from proxyless.xds.filters.session_filter import SessionFilter
    from proxyless.xds.parsing.http_filters import FilterMessage

_PACKAGE: Final = "envoy.extensions.filters.http.stateful_session.v3"
STATEFUL_SESSION_TYPE: Final = f"{_PACKAGE}.StatefulSession"
STATEFUL_SESSION_PER_ROUTE_TYPE: Final = f"{_PACKAGE}.StatefulSessionPerRoute"
COOKIE_STATE_TYPE: Final = (
    "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"
)


@frozen
class SessionCookie:
    """The cookie that holds the endpoint of a session."""

    name: str
    # The filter applies to RPCs of this path; empty is every path.
    path: str = ""
    # Max-Age of the cookie, which the client enforces; 0 is a session cookie.
    ttl_s: float = 0.0


@frozen
class StatefulSessionConfig:
    """The cookie; None if the filter does nothing."""

    cookie: SessionCookie | None = None

    def describe(self) -> str:
        """The effect on an RPC, for explanations."""
        if self.cookie is None:
            return "does nothing to the RPC"
        return f"keeps sessions by cookie {quote(self.cookie.name)}"


class StatefulSessionFilterFactory:
    """Factory of the stateful session filter."""

    config_types: Final = (STATEFUL_SESSION_TYPE,)
    override_types: Final = (STATEFUL_SESSION_PER_ROUTE_TYPE,)
    is_terminal: Final = False

    def parse_config(
        self, message: FilterMessage, errors: ValidationErrors
    ) -> StatefulSessionConfig:
        session = want_message(message, STATEFUL_SESSION_TYPE, errors)
        return StatefulSessionConfig() if session is None else _parse_session(session, errors)

    def parse_override(
        self, message: FilterMessage, errors: ValidationErrors
    ) -> StatefulSessionConfig:
        per_route = want_message(message, STATEFUL_SESSION_PER_ROUTE_TYPE, errors)
        # The other override is `disabled`.
        if per_route is None or per_route.WhichOneof("override") != "stateful_session":
            return StatefulSessionConfig()
        with errors.field("stateful_session"):
            return _parse_session(per_route.stateful_session, errors)

    def create(
        self, config: object, override: object | None, random: Random
    ) -> SessionFilter | None:
        # An override replaces the whole config.
        session = config if override is None else override
        assert isinstance(session, StatefulSessionConfig), "the config has this filter's type"
        if session.cookie is None:
            return None
        from proxyless.xds.filters.session_filter import SessionFilter  # noqa: PLC0415 - rare

        return SessionFilter(session.cookie)


def _parse_session(message: Proto, errors: ValidationErrors) -> StatefulSessionConfig:
    """Without a session_state the filter does nothing; that is not an error (A55-01)."""
    if not message.HasField("session_state"):
        return StatefulSessionConfig()
    with errors.field("session_state"), errors.field("typed_config"):
        state = decode_any_as(COOKIE_STATE_TYPE, message.session_state.typed_config, errors)
        if state is None:
            return StatefulSessionConfig()
        with errors.key(COOKIE_STATE_TYPE), errors.field("cookie"):
            return StatefulSessionConfig(_parse_cookie(state.cookie, errors))


def _parse_cookie(cookie: Proto, errors: ValidationErrors) -> SessionCookie:
    if not cookie.name:
        with errors.field("name"):
            errors.add("is empty, wanted the cookie's name")
    ttl_s = read_duration_s(cookie, "ttl", errors) or 0.0
    return SessionCookie(cookie.name, cookie.path, ttl_s)
