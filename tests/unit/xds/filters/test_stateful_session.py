"""Parser of the stateful_session config. Rejected configs are in tests/spec."""

from proxyless.base import ValidationErrors
from proxyless.xds.filters.stateful_session import (
    COOKIE_STATE_TYPE,
    STATEFUL_SESSION_PER_ROUTE_TYPE,
    STATEFUL_SESSION_TYPE,
    SessionCookie,
    StatefulSessionConfig,
    StatefulSessionFilterFactory,
)
from tests.unit.xds.parsing.messages import Json, any_of, make


def session(**cookie: object) -> Json:
    return {"session_state": {"typed_config": any_of(COOKIE_STATE_TYPE, cookie=cookie)}}


def test_cookie_has_name_path_and_ttl() -> None:
    errors = ValidationErrors()
    message = make(STATEFUL_SESSION_TYPE, session(name="n", path="/p", ttl="2s"))
    config = StatefulSessionFilterFactory().parse_config(message, errors)
    assert config == StatefulSessionConfig(SessionCookie("n", "/p", 2.0))
    assert errors.ok


def test_override_replaces_or_disables_the_config() -> None:
    errors = ValidationErrors()
    factory = StatefulSessionFilterFactory()
    other = make(STATEFUL_SESSION_PER_ROUTE_TYPE, {"stateful_session": session(name="o")})
    assert factory.parse_override(other, errors) == StatefulSessionConfig(SessionCookie("o"))
    nothing: list[Json] = [{"disabled": True}, {"stateful_session": {}}, {}]
    for fields in nothing:
        message = make(STATEFUL_SESSION_PER_ROUTE_TYPE, fields)
        assert factory.parse_override(message, errors) == StatefulSessionConfig()
    assert errors.ok


def test_error_of_an_override_names_the_field() -> None:
    errors = ValidationErrors()
    message = make(STATEFUL_SESSION_PER_ROUTE_TYPE, {"stateful_session": session(path="/")})
    StatefulSessionFilterFactory().parse_override(message, errors)
    assert str(errors) == (
        f'[field:stateful_session.session_state.typed_config["{COOKIE_STATE_TYPE}"].cookie.name'
        " error:is empty, wanted the cookie's name]"
    )


def test_typed_struct_is_rejected() -> None:
    errors = ValidationErrors()
    factory = StatefulSessionFilterFactory()
    assert factory.parse_config({}, errors) == StatefulSessionConfig()
    assert factory.parse_override({}, errors) == StatefulSessionConfig()
    assert str(errors) == (
        f"[errors:[is a TypedStruct, wanted {STATEFUL_SESSION_TYPE};"
        f" is a TypedStruct, wanted {STATEFUL_SESSION_PER_ROUTE_TYPE}]]"
    )
