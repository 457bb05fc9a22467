"""How are connections to a cluster secured, and may we secure them so?

Specs: A29 (UpstreamTlsContext), A82 (system roots), A101 (SNI).

"An unsupported field is normally ignored. However if ignoring a field compromises security [...] we
NACK the update" - A29. Certificates come only from certificate providers that the bootstrap names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.xds.parsing.matchers import parse_string_matcher
from proxyless.xds.parsing.proto_fields import decode_any_as
from proxyless.xds.resources import CertificateInstance, SanMatcher, UpstreamTls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from proxyless.base import ValidationErrors
    from proxyless.protos import Proto
    from proxyless.xds.resources import StringMatcher
    from proxyless.xds.resources.cluster import SanType

    SanMatchers = tuple[StringMatcher | SanMatcher, ...]

UPSTREAM_TLS_CONTEXT: Final = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

# Each says "false" to have fields ignored (D40): system_root_certs; sni and what belongs to it.
SYSTEM_ROOTS_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS"
SNI_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_SNI"

# Longer ones cannot be said in TLS (RFC 6066).
SNI_LENGTH_MAX: Final = 255

_UNSUPPORTED: Final = "is set, which is not supported"

# Fields that would restrict what we accept, if we knew how.
_UNSUPPORTED_IN_CONTEXT: Final = ("tls_params", "custom_handshaker")
_UNSUPPORTED_IN_VALIDATION: Final = ("crl", "custom_validator_config")
_UNSUPPORTED_LISTS_IN_VALIDATION: Final = ("verify_certificate_spki", "verify_certificate_hash")
# By number: email, DNS, URI and IP address.
_SAN_TYPES: Final[dict[int, SanType]] = {1: "email", 2: "DNS", 3: "URI", 4: "IP"}
# Of matchers that compare with a part of a name. Nothing is a part of every one.
_KINDS_OF_PARTS: Final = ("prefix", "suffix", "contains")
# Other ways to say who we are.
_UNSUPPORTED_IDENTITIES: Final = ("tls_certificates", "tls_certificate_sds_secret_configs")


def parse_transport_socket(
    socket: Proto, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
) -> UpstreamTls | None:
    """The TLS of a TransportSocket. `providers` are the instance names that the bootstrap has."""
    with errors.field("typed_config"):
        message = decode_any_as(UPSTREAM_TLS_CONTEXT, socket.typed_config, errors)
        if message is None:
            return None
        with errors.key(UPSTREAM_TLS_CONTEXT):
            return parse_upstream_tls(message, providers, environ, errors)


def parse_upstream_tls(
    message: Proto, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
) -> UpstreamTls:
    """An UpstreamTlsContext. Counts only if nothing was added to errors."""
    with errors.field("common_tls_context"):
        tls = _Context(providers, environ, errors).parse(message.common_tls_context)
    if not _is_enabled(SNI_GUARD, environ):
        return tls
    if len(message.sni) > SNI_LENGTH_MAX:
        with errors.field("sni"):
            errors.add(f"has {len(message.sni)} characters, wanted at most {SNI_LENGTH_MAX}")
    return replace(
        tls,
        sni=message.sni,
        auto_host_sni=message.auto_host_sni,
        auto_sni_san_validation=message.auto_sni_san_validation,
    )


def _is_enabled(guard: str, environ: Mapping[str, str]) -> bool:
    return environ.get(guard, "").strip().lower() != "false"


class _Context:
    """Reads the common_tls_context of one message. Driven by `parse_upstream_tls`."""

    def __init__(
        self, providers: Collection[str], environ: Mapping[str, str], errors: ValidationErrors
    ) -> None:
        self._providers = providers
        self._environ = environ
        self._errors = errors

    def parse(self, context: Proto) -> UpstreamTls:
        self._refuse_fields(context, _UNSUPPORTED_IN_CONTEXT)
        ca, has_system_roots, matchers = self._parse_validation(context)
        if ca is None and not has_system_roots:
            self._errors.add("has no CA certificates, wanted ca_certificate_provider_instance")
        return UpstreamTls(ca=ca, identity=self._parse_identity(context), san_matchers=matchers)

    def _parse_validation(
        self, context: Proto
    ) -> tuple[CertificateInstance | None, bool, SanMatchers]:
        """Who vouches for servers, whether the system's roots do, and what names are expected."""
        match context.WhichOneof("validation_context_type"):
            case "validation_context":
                with self._errors.field("validation_context"):
                    return self._parse_validation_context(context.validation_context)
            case "combined_validation_context":
                with self._errors.field("combined_validation_context"):
                    return self._parse_combined(context.combined_validation_context)
            case "validation_context_sds_secret_config" as field:
                self._add(field, _UNSUPPORTED)
            case _:
                pass
        return None, False, ()

    def _parse_combined(
        self, combined: Proto
    ) -> tuple[CertificateInstance | None, bool, SanMatchers]:
        with self._errors.field("default_validation_context"):
            ca, has_system_roots, matchers = self._parse_validation_context(
                combined.default_validation_context
            )
        # An older spelling, which control planes still use.
        older = self._parse_instance(combined, "validation_context_certificate_provider_instance")
        return ca or older, has_system_roots, matchers

    def _parse_validation_context(
        self, context: Proto
    ) -> tuple[CertificateInstance | None, bool, SanMatchers]:
        self._refuse_fields(context, _UNSUPPORTED_IN_VALIDATION)
        self._refuse_lists(context, _UNSUPPORTED_LISTS_IN_VALIDATION)
        if context.require_signed_certificate_timestamp.value:
            self._add("require_signed_certificate_timestamp", _UNSUPPORTED)
        ca = self._parse_instance(context, "ca_certificate_provider_instance")
        matchers: SanMatchers = tuple(self._parse_matchers(context.match_subject_alt_names))
        if not context.match_subject_alt_names:
            # What Envoy has in place of the above. A29 does not know it, but to ignore it where
            # nothing else is said would be to accept every name.
            matchers = tuple(self._parse_typed_matchers(context.match_typed_subject_alt_names))
        # "if this field is present and the ca_certificate_provider_instance field is unset, system
        # root certificates will be used" - A82
        has_system_roots = context.HasField("system_root_certs")
        return ca, has_system_roots and _is_enabled(SYSTEM_ROOTS_GUARD, self._environ), matchers

    def _parse_matchers(self, messages: Proto) -> Iterator[StringMatcher]:
        for index, message in enumerate(messages):
            with self._errors.field("match_subject_alt_names"), self._errors.index(index):
                matcher = self._parse_matcher(message)
            if matcher is not None:
                yield matcher

    def _parse_typed_matchers(self, messages: Proto) -> Iterator[SanMatcher]:
        for index, message in enumerate(messages):
            with self._errors.field("match_typed_subject_alt_names"), self._errors.index(index):
                san_type = _SAN_TYPES.get(message.san_type)
                if san_type is None:
                    self._add("san_type", f"is {message.san_type}, wanted one of 1 to 4")
                with self._errors.field("matcher"):
                    matcher = self._parse_matcher(message.matcher)
            if matcher is not None and san_type is not None:
                yield SanMatcher(san_type, matcher)

    def _parse_matcher(self, message: Proto) -> StringMatcher | None:
        matcher = parse_string_matcher(message, self._errors)
        if matcher is not None and matcher.kind in _KINDS_OF_PARTS and not matcher.value:
            # Envoy's rules for the message do not allow it either.
            self._add(matcher.kind, "is empty, which would accept every name")
        return matcher

    def _parse_identity(self, context: Proto) -> CertificateInstance | None:
        instance = self._parse_instance(context, "tls_certificate_provider_instance")
        if instance is None:
            # An older spelling, as above.
            older = "tls_certificate_certificate_provider_instance"
            instance = self._parse_instance(context, older)
        if instance is None:
            self._refuse_lists(context, _UNSUPPORTED_IDENTITIES)
        return instance

    def _parse_instance(self, owner: Proto, field: str) -> CertificateInstance | None:
        """A certificate provider that the bootstrap has, if the field is set."""
        if not owner.HasField(field):
            return None
        instance = getattr(owner, field)
        if instance.instance_name not in self._providers:
            what = (
                f"is {instance.instance_name!r}, which is no certificate provider of the bootstrap"
            )
            self._add(f"{field}.instance_name", what)
        return CertificateInstance(instance.instance_name, instance.certificate_name)

    def _refuse_fields(self, message: Proto, fields: Collection[str]) -> None:
        for field in fields:
            if message.HasField(field):
                self._add(field, _UNSUPPORTED)

    def _refuse_lists(self, message: Proto, fields: Collection[str]) -> None:
        for field in fields:
            if getattr(message, field):
                self._add(field, _UNSUPPORTED)

    def _add(self, field: str, text: str) -> None:
        with self._errors.field(field):
            self._errors.add(text)
