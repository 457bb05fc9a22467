"""Percent-encoding of text and bytes (RFC 3986), with the functions of `urllib.parse`.

Most texts have nothing to encode or decode, so most processes do without that module, which imports
`ipaddress` too (ADR 0026).
"""

from typing import Final

# "unreserved" - RFC 3986
_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"


def quote(text: str, safe: str) -> str:
    """The text with all characters encoded except unreserved and safe ones."""
    if not text.strip(_UNRESERVED + safe):
        return text
    from urllib.parse import quote  # noqa: PLC0415 - seldom used

    return quote(text, safe)


def quote_from_bytes(data: bytes, safe: str) -> str:
    """The same for bytes."""
    text = data.decode("latin-1")
    if not text.strip(_UNRESERVED + safe):
        return text
    from urllib.parse import quote_from_bytes  # noqa: PLC0415 - seldom used

    return quote_from_bytes(data, safe)


def unquote(text: str) -> str:
    """The decoded text. Raises UnicodeDecodeError if it is not UTF-8."""
    if "%" not in text:
        return text
    from urllib.parse import unquote  # noqa: PLC0415 - seldom used

    return unquote(text, errors="strict")


def unquote_to_bytes(data: bytes) -> bytes:
    """The decoded bytes."""
    if b"%" not in data:
        return data
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - seldom used

    return unquote_to_bytes(data)
