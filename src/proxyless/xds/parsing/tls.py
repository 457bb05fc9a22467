"""Parser of a cluster's UpstreamTlsContext.

Specs: A29 (UpstreamTlsContext), A82 (system roots), A101 (SNI).

"An unsupported field is normally ignored. However if ignoring a field compromises security [...] we
NACK the update" - A29. Certificates come only from the bootstrap's certificate providers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base.environment import read_flag
from proxyless.xds.parsing.matchers import parse_string_matcher
from proxyless.xds.parsing.proto_fields import add_error, decode_any_as, parse_list
from proxyless.xds.resources import CertificateInstance, SanMatcher, UpstreamTls

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.xds.resources import StringMatcher
    from proxyless.xds.resources.cluster import SanType

    SanMatchers = tuple[StringMatcher | SanMatcher, ...]
    # The provider of the CA certificates, whether system roots are used, the SAN matchers.
    Validation = tuple[CertificateInstance | None, bool, SanMatchers]

UPSTREAM_TLS_CONTEXT: Final = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

# Environment variables; with "false", system_root_certs or the fields for SNI are ignored (D40).
SYSTEM_ROOTS_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS"
SNI_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_SNI"

# The limit of TLS (RFC 6066).
SNI_LENGTH_MAX: Final = 255

_UNSUPPORTED: Final = "is set, which is not supported"

# Fields that restrict which servers are accepted, or how.
_UNSUPPORTED_IN_CONTEXT: Final = ("tls_params", "custom_handshaker")
_UNSUPPORTED_IN_VALIDATION: Final = (
    "crl",
    "custom_validator_config",
    "verify_certificate_spki",
    "verify_certificate_hash",
)
# Fields that configure the identity without a certificate provider.
_UNSUPPORTED_IDENTITIES: Final = ("tls_certificates", "tls_certificate_sds_secret_configs")
# The enum SubjectAltNameMatcher.SanType.
_SAN_TYPES: Final[dict[int, SanType]] = {1: "email", 2: "DNS", 3: "URI", 4: "IP"}
# Kinds of matchers that match every name if their value is empty.
_SUBSTRING_KINDS: Final = ("prefix", "suffix", "contains")


def parse_transport_socket(
    socket: Proto, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
) -> UpstreamTls | None:
    """The TLS of a TransportSocket. `providers` are the instance names of the bootstrap."""
    with errors.field("typed_config"):
        message = decode_any_as(UPSTREAM_TLS_CONTEXT, socket.typed_config, errors)
        if message is None:
            return None
        with errors.key(UPSTREAM_TLS_CONTEXT):
            return _parse_upstream_tls(message, providers, environ, errors)


def _parse_upstream_tls(
    message: Proto, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
) -> UpstreamTls:
    with errors.field("common_tls_context"):
        tls = _CommonContextParser(providers, environ, errors).parse(message.common_tls_context)
    if not read_flag(environ, SNI_GUARD, default=True):
        return tls
    if len(message.sni) > SNI_LENGTH_MAX:
        text = f"has {len(message.sni)} characters, wanted at most {SNI_LENGTH_MAX}"
        add_error(errors, "sni", text)
    elif not message.sni.isprintable():
        # A NUL, for example, is sent by no TLS library.
        add_error(errors, "sni", f"is {message.sni!r}, wanted printable characters")
    return replace(
        tls,
        sni=message.sni,
        auto_host_sni=message.auto_host_sni,
        auto_sni_san_validation=message.auto_sni_san_validation,
    )


class _CommonContextParser:
    """Parser of one CommonTlsContext."""

    def __init__(
        self, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
    ) -> None:
        self._providers = providers
        self._environ = environ
        self._errors = errors

    def parse(self, context: Proto) -> UpstreamTls:
        self._reject_fields(context, _UNSUPPORTED_IN_CONTEXT)
        ca, has_system_roots, matchers = self._parse_validation(context)
        if ca is None and not has_system_roots:
            self._errors.add("has no CA certificates, wanted ca_certificate_provider_instance")
        return UpstreamTls(ca=ca, identity=self._parse_identity(context), san_matchers=matchers)

    def _parse_validation(self, context: Proto) -> Validation:
        match context.WhichOneof("validation_context_type"):
            case "validation_context":
                with self._errors.field("validation_context"):
                    return self._parse_validation_context(context.validation_context)
            case "combined_validation_context":
                with self._errors.field("combined_validation_context"):
                    return self._parse_combined(context.combined_validation_context)
            case "validation_context_sds_secret_config" as field:
                add_error(self._errors, field, _UNSUPPORTED)
            case _:
                pass
        return None, False, ()

    def _parse_combined(self, combined: Proto) -> Validation:
        with self._errors.field("default_validation_context"):
            ca, has_system_roots, matchers = self._parse_validation_context(
                combined.default_validation_context
            )
        # The older field, which control planes still use.
        older = self._parse_instance(combined, "validation_context_certificate_provider_instance")
        return ca or older, has_system_roots, matchers

    def _parse_validation_context(self, context: Proto) -> Validation:
        self._reject_fields(context, _UNSUPPORTED_IN_VALIDATION)
        if context.require_signed_certificate_timestamp.value:
            add_error(self._errors, "require_signed_certificate_timestamp", _UNSUPPORTED)
        ca = self._parse_instance(context, "ca_certificate_provider_instance")
        with self._errors.field("match_subject_alt_names"):
            matchers: SanMatchers = parse_list(
                context.match_subject_alt_names, None, _parse_matcher, self._errors
            )
        if not context.match_subject_alt_names:
            # Envoy's replacement of the field above. A29 does not mention it, but ignoring it
            # would accept every name.
            with self._errors.field("match_typed_subject_alt_names"):
                matchers = parse_list(
                    context.match_typed_subject_alt_names, None, _parse_san_matcher, self._errors
                )
        # "if this field is present and the ca_certificate_provider_instance field is unset, system
        # root certificates will be used" - A82
        has_system_roots = context.HasField("system_root_certs") and read_flag(
            self._environ, SYSTEM_ROOTS_GUARD, default=True
        )
        return ca, has_system_roots, matchers

    def _parse_identity(self, context: Proto) -> CertificateInstance | None:
        instance = self._parse_instance(context, "tls_certificate_provider_instance")
        if instance is None:
            older = "tls_certificate_certificate_provider_instance"
            instance = self._parse_instance(context, older)
        if instance is None:
            self._reject_fields(context, _UNSUPPORTED_IDENTITIES)
        return instance

    def _parse_instance(self, owner: Proto, field: str) -> CertificateInstance | None:
        """The certificate provider instance in this field, if it is set."""
        if not owner.HasField(field):
            return None
        instance = getattr(owner, field)
        if instance.instance_name not in self._providers:
            name = instance.instance_name
            text = f"is {name!r}, which is no certificate provider of the bootstrap"
            add_error(self._errors, f"{field}.instance_name", text)
        return CertificateInstance(instance.instance_name, instance.certificate_name)

    def _reject_fields(self, message: Proto, fields: Collection[str]) -> None:
        set_fields = {descriptor.name for descriptor, _ in message.ListFields()}
        for field in fields:
            if field in set_fields:
                add_error(self._errors, field, _UNSUPPORTED)


def _parse_san_matcher(message: Proto, errors: ValidationErrors) -> SanMatcher | None:
    san_type = _SAN_TYPES.get(message.san_type)
    if san_type is None:
        add_error(errors, "san_type", f"is {message.san_type}, wanted one of 1 to 4")
    with errors.field("matcher"):
        matcher = _parse_matcher(message.matcher, errors)
    return None if matcher is None or san_type is None else SanMatcher(san_type, matcher)


def _parse_matcher(message: Proto, errors: ValidationErrors) -> StringMatcher | None:
    matcher = parse_string_matcher(message, errors)
    if matcher is not None and matcher.kind in _SUBSTRING_KINDS and not matcher.value:
        # Envoy's validation rules reject it, too.
        add_error(errors, matcher.kind, "is empty, which would accept every name")
    return matcher
