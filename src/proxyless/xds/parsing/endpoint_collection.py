"""LEDS: parser of LbEndpoint resources, the members of a collection of endpoints.

Specs: LE-04 to LE-06, xRFC TP1 (glob collections), A27-22 and A27-23 (endpoints).
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationErrors
from proxyless.protos import DECODE_ERRORS, message_class
from proxyless.runtime.work_queue import STEP_UNITS, finish
from proxyless.xds.client.api import Decoded
from proxyless.xds.client.codec import decode_members_in_steps
from proxyless.xds.error_texts import name_resource
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX
from proxyless.xds.parsing.endpoint import LB_ENDPOINT, parse_endpoint
from proxyless.xds.parsing.http_proxy import is_http_connect_enabled
from proxyless.xds.parsing.limits import ENDPOINTS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext
    from proxyless.xds.resources import EndpointInfo

_MEMBERS_PER_STEP: Final = 10


class EndpointCollectionType:
    """The LEDS resource type (`CollectionType`)."""

    type_url: Final = f"{TYPE_URL_PREFIX}{LB_ENDPOINT}"
    is_full_state: Final = False
    members_max: Final = ENDPOINTS_MAX

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._has_proxies: Final = is_http_connect_enabled(environ)

    def decode_member(
        self, name: str, serialized: bytes, context: DecodeContext
    ) -> Decoded[EndpointInfo]:
        message = message_class(LB_ENDPOINT)()
        try:
            message.ParseFromString(serialized)
        except DECODE_ERRORS:
            text = f"{name_resource(LB_ENDPOINT, name)}: cannot be decoded as {LB_ENDPOINT}"
            return Decoded(name, error=text)
        errors = ValidationErrors()
        endpoint = parse_endpoint(message, errors, has_proxies=self._has_proxies)
        if not errors.ok:
            return Decoded(name, error=f"{name_resource(LB_ENDPOINT, name)}: {errors}")
        return Decoded(name, endpoint)

    def decode(
        self, serialized: bytes, context: DecodeContext
    ) -> Decoded[Mapping[str, EndpointInfo]]:
        return finish(self.decode_in_steps(serialized, context))

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Steps[Decoded[Mapping[str, EndpointInfo]]]:
        """Decode all members of a saved collection."""
        raw = yield from decode_members_in_steps(serialized)
        if raw is None:
            return Decoded("", error="endpoint collection: cannot be decoded")
        endpoints: dict[str, EndpointInfo] = {}
        for number, (name, member) in enumerate(raw, 1):
            decoded = self.decode_member(name, member, context)
            if decoded.error:
                return Decoded("", error=decoded.error)
            if decoded.resource is not None:
                endpoints[name] = decoded.resource
            if not number % _MEMBERS_PER_STEP:
                yield STEP_UNITS
        return Decoded("", MappingProxyType(endpoints))
