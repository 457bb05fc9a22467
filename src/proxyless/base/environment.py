"""Flags of the process environment."""

from collections.abc import Mapping


def read_flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    """The flag that an environment variable holds: "true" or "false", in any case.

    Any other value counts as unset, as in C-core.
    """
    value = environ.get(name, "").strip().lower()
    return value == "true" or (default and value != "false")
