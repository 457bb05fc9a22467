"""Target: parsing of the text of a target (pure).

Specs: gRPC Name Resolution ("Name Syntax"), RFC 3986. Names are not validated here.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from proxyless.base.endpoint import PORT_MAX
from proxyless.base.frozen import frozen
from proxyless.base.percent import quote, unquote

# "If not specified, 443 is used" - gRPC Name Resolution
DEFAULT_PORT: Final = 443
# The service names that grpcio supports.
_NAMED_PORTS: Final = {"http": 80, "https": 443}

_PREFIX: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):").match
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.\-]*").fullmatch
_QUERY_OR_FRAGMENT: Final = re.compile(r"[?#].*", re.DOTALL)
# Excludes characters of ports, paths and user info; the look-up rejects other invalid names.
_HOST: Final = re.compile(r"[^\s\x00-\x20\x7f/\\@?#:\[\]]+").fullmatch
# White space and leading zeros are skipped, as in grpcio: a target that is read from a file often
# ends with a line feed.
_PORT: Final = re.compile(r"[\t-\r ]*\+?0*([0-9]{1,5})[\t-\r ]*").fullmatch

# "authority" and "pchar" of RFC 3986, without the unreserved characters.
_AUTHORITY_SAFE: Final = "!$&'()*+,;=:[]@"
_PATH_SAFE: Final = "!$&'()*+,;=:[]@/"


@frozen
class Target:
    """A parsed target, percent-decoded."""

    scheme: str
    authority: str
    path: str

    @property
    def name(self) -> str:
        """The path without its leading slash."""
        return self.path.removeprefix("/")

    def __str__(self) -> str:
        """The canonical text. Parsing it returns an equal target."""
        path = quote(self.path, safe=_PATH_SAFE)
        if self.authority or path.startswith("/"):
            return f"{self.scheme}://{encode_authority(self.authority)}{path}"
        return f"{self.scheme}:{path}"


def parse_target(text: str, schemes: Collection[str], default_scheme: str = "dns") -> Target:
    """Parse a target, or raise ValueError.

    As in grpcio, text without a known scheme is a name of the default scheme, as in `backend:80`.
    Query and fragment are ignored.
    """
    if not text:
        raise ValueError("target is empty: wanted scheme:///name or host:port")
    prefix = _PREFIX(text)
    if prefix is not None and prefix[1].lower() in schemes:
        return _split_target(prefix[1].lower(), text[prefix.end() :], text)
    # Unlike grpcio, which would resolve a host called "htps://backend".
    if prefix is not None and text.startswith("//", prefix.end()):
        raise ValueError(
            f"target {text!r} has the unknown scheme {prefix[1]!r}: "
            f"wanted one of {', '.join(sorted(schemes))}"
        )
    return _split_target(default_scheme, f"///{text}", text)


def has_name(text: str, schemes: Collection[str], scheme: str = "dns") -> bool:
    """Whether text has a non-empty name of this scheme, which is the default one."""
    prefix = _PREFIX(text)
    if prefix is None or prefix[1].lower() not in schemes:
        return bool(text)
    rest = _QUERY_OR_FRAGMENT.sub("", text[prefix.end() :])
    path = rest if not rest.startswith("//") else "/" + rest[2:].partition("/")[2]
    return prefix[1].lower() == scheme and path not in ("", "/")


def _split_target(scheme: str, rest: str, text: str) -> Target:
    rest = _QUERY_OR_FRAGMENT.sub("", rest)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, tail = rest[2:].partition("/")
        path = slash + tail
    if path in ("", "/"):
        # A common mistake: with two slashes the name is parsed as an authority.
        wanted = f"{scheme}:///{authority}" if authority else f"{scheme}:///name"
        raise ValueError(f"target {text!r} has no name to resolve: wanted {wanted}")
    try:
        return Target(scheme, unquote(authority), unquote(path))
    except UnicodeDecodeError:
        raise ValueError(f"target {text!r} is not valid: wanted UTF-8 percent-encoded") from None


@contextmanager
def naming_target(target: Target) -> Iterator[None]:
    """Prefix a ValueError raised inside with the target."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"target '{target}': {error}") from None


def is_scheme(text: str) -> bool:
    """Whether this is a valid scheme, in lower case."""
    return _SCHEME(text) is not None


def encode_authority(text: str) -> str:
    """The text percent-encoded for an `:authority`."""
    return quote(text, safe=_AUTHORITY_SAFE)


def parse_host_port(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Host without brackets, and port: of `host`, `host:80`, `[::1]:80`, `[::1]` or `::1`.

    The host is a name or a literal address. Raises ValueError for other text.
    """
    host, port_text = _split_port(text)
    if ":" in host:
        _check_ipv6(host, text)
    elif not _HOST(host):
        raise ValueError(f"name {text!r} has host {host!r}: wanted host, host:port or [ipv6]:port")
    return host, _parse_port(port_text, text) if port_text else default_port


def encode_host_port(text: str) -> str:
    """The authority of a host with an optional port."""
    host, _ = parse_host_port(text)
    is_bare_ipv6 = ":" in host and not text.startswith("[")
    return encode_authority(f"[{text}]" if is_bare_ipv6 else text)


def _split_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        # Only an IPv6 address has brackets.
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError(f"name {text!r} is not valid: wanted [ipv6] or [ipv6]:port")
        return host, rest[1:]
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def _check_ipv6(host: str, text: str) -> None:
    from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415 - seldom used

    try:
        IPv6Address(host)
    except AddressValueError:
        raise ValueError(
            f"name {text!r} has host {host!r}: wanted host:port or a literal IPv6 address"
        ) from None


def _parse_port(port: str, text: str) -> int:
    number = _NAMED_PORTS.get(port)
    if number is None and (match := _PORT(port)):
        number = int(match[1])
    if number is None or number > PORT_MAX:
        raise ValueError(f"name {text!r} has port {port!r}: wanted 0 to {PORT_MAX}")
    return number
