"""Names of resources: parsing, canonical form, templates, and the servers of their authorities.

Specs: A47 (federation), A27 (targets), xRFC TP1 (`xdstp` names), RFC 3986.

A name is old-style, any text that belongs to no authority, or new-style:
`xdstp://authority/type/id?context=params`. The order of context params does not matter.
"""

from typing import Final

from proxyless.base import Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.base.percent import quote, unquote
from proxyless.resolver.target import encode_authority
from proxyless.xds.bootstrap import Bootstrap, ServerConfig
from proxyless.xds.bootstrap.bootstrap import LISTENER_TYPE

XDSTP: Final = "xdstp:"
# End of the path of a glob collection (TP1).
GLOB: Final = "/*"
_XDSTP_PREFIX: Final = "xdstp://"

# A path may have "only characters allowed in a URI path as per RFC-3986 section 3.3" - A47
_PATH_SAFE: Final = "!$&'()*+,;=:@/"
# The same, without the separators of params, and with "?".
_PARAM_SAFE: Final = "!$'()*+,;:@/?"


@frozen
class ResourceName:
    """Parts of a name, percent-decoded. Names of the same resource are equal."""

    # None for an old-style name, whose only part is the id.
    authority: str | None
    # Full name of the message, such as `envoy.config.listener.v3.Listener`.
    resource_type: str
    id: str
    # "sorting the context params in normal lexicographic order" - A47
    context_params: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Canonical form; parsing it gives an equal name."""
        if self.authority is None:
            return self.id
        params = "&".join(f"{_encode(key)}={_encode(value)}" for key, value in self.context_params)
        path = f"{self.resource_type}/{encode_path(self.id)}"
        name = f"{_XDSTP_PREFIX}{encode_authority(self.authority)}/{path}"
        return f"{name}?{params}" if params else name


@frozen
class ListenerName:
    """Listener of a target, and the authority of its RPCs."""

    resource_name: str
    data_plane_authority: str


def parse_resource_name(text: str, resource_type: str) -> ResourceName | Status:
    """Parse the name of a resource of this type, the full name of a message."""
    if not text.startswith(XDSTP):
        return ResourceName(None, resource_type, text)
    if not text.startswith(_XDSTP_PREFIX):
        return _reject(text, "wanted xdstp://authority/type/id")
    # The directives behind a "#" are not part of the name.
    location, _, query = text.removeprefix(_XDSTP_PREFIX).partition("#")[0].partition("?")
    authority, _, path = location.partition("/")
    got_type, _, resource_id = path.partition("/")
    if got_type != resource_type:
        return _reject(text, f"has type {got_type!r}, wanted {resource_type!r}")
    if not resource_id:
        return _reject(text, f"has no id: wanted {_XDSTP_PREFIX}{authority}/{resource_type}/id")
    try:
        params = _parse_params(query)
        return ResourceName(unquote(authority), resource_type, unquote(resource_id), params)
    except UnicodeDecodeError:
        return _reject(text, "wanted UTF-8 percent-encoded")


def parse_collection_name(text: str, resource_type: str) -> ResourceName | Status:
    """Parse the name of a glob collection of this type: `xdstp://authority/type/path/*`."""
    wanted = f"wanted {_XDSTP_PREFIX}authority/{resource_type}/path{GLOB}"
    if not text.startswith(_XDSTP_PREFIX):
        return _reject(text, wanted)
    if f"/{resource_type}Collection/" in text:
        return _reject(text, f"is a list collection, {wanted}")
    name = parse_resource_name(text, resource_type)
    if isinstance(name, ResourceName) and not name.id.endswith(GLOB):
        return _reject(text, wanted)
    return name


def collection_of(member: str) -> str:
    """Name of the glob collection that has this member: the last part of its path replaced."""
    path, separator, params = member.partition("?")
    return f"{path.rpartition('/')[0]}{GLOB}{separator}{params}"


def expand_template(template: str, name: str) -> str:
    """Replace every `%s` by the name, percent-encoded in an xdstp template."""
    return template.replace("%s", encode_path(name) if template.startswith(XDSTP) else name)


def encode_path(text: str) -> str:
    """Percent-encode a text for the path of an xdstp name."""
    return quote(text, safe=_PATH_SAFE)


def servers_of(bootstrap: Bootstrap, authority: str | None) -> tuple[ServerConfig, ...] | Status:
    """Servers of an authority, in order of preference. None is that of old-style names."""
    if authority is None:
        return bootstrap.servers
    entry = bootstrap.authorities.get(authority)
    if entry is None:
        return _unknown_authority(bootstrap, authority)
    return entry.servers or bootstrap.servers


def listener_name_for_target(
    bootstrap: Bootstrap, target_authority: str, path: str
) -> ListenerName | Status:
    """Listener of the target `xds://target_authority/path`; both are percent-decoded."""
    host = path.removeprefix("/")
    if not host or host.endswith("/"):
        return Status(
            StatusCode.UNAVAILABLE,
            f"xds target has path {path!r}, wanted a name that does not end in '/'",
        )
    template = bootstrap.client_default_listener_resource_name_template
    if target_authority:
        entry = bootstrap.authorities.get(target_authority)
        if entry is None:
            return _unknown_authority(bootstrap, target_authority)
        template = entry.client_listener_resource_name_template
    name = parse_resource_name(expand_template(template, host), LISTENER_TYPE)
    if isinstance(name, Status):
        return name
    servers = servers_of(bootstrap, name.authority)
    if isinstance(servers, Status):
        return servers
    # "Any remaining `/` characters will be percent-encoded" - A47
    return ListenerName(str(name), encode_authority(host))


def _unknown_authority(bootstrap: Bootstrap, authority: str) -> Status:
    names = ", ".join(map(repr, sorted(bootstrap.authorities))) or "none"
    text = f"xds authority {authority!r} is not in the bootstrap, which has {names}"
    return Status(StatusCode.UNAVAILABLE, text)


def _parse_params(query: str) -> tuple[tuple[str, str], ...]:
    """Parse and sort the params. The last value of a repeated key counts."""
    pairs = (param.partition("=") for param in query.split("&") if param)
    return tuple(sorted({unquote(key): unquote(value) for key, _, value in pairs}.items()))


def _encode(text: str) -> str:
    return quote(text, safe=_PARAM_SAFE)


def _reject(name: str, what: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, f"xds resource name {name!r} is not valid: {what}")
