"""Message classes of Envoy's API, ORCA, channelz and our live service, in a private pool.

The build takes the descriptors from xds-protos and grpcio-channelz, and compiles our own
(tools/hatch_build.py). A private pool avoids conflicts with an application's copies of the same
files (docs/adr/0011-private-descriptors.md).

merging    parser of large messages in steps
redaction  removal of secrets from resources
"""

from __future__ import annotations

import functools
import os
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["DECODE_ERRORS", "Proto", "descriptor_pool_of_envoy", "message_class"]

# A message. Its class is created at run time, so its fields have no types.
Proto: TypeAlias = Any

# What parsing raises for bytes that are not a message. protobuf's implementation in Python, which
# is installed where there is no wheel, raises the second for a text that is not UTF-8.
DECODE_ERRORS: Final = (DecodeError, UnicodeDecodeError)

# The implementation in C is used directly if protobuf uses it: the public modules also import the
# one in Python, in 12 ms, and create the classes of all messages that a message may contain, in 20.
_IS_UPB = api_implementation.Type() == "upb"

# The tag of `FileDescriptorSet.file`, and the continuation bit of a varint.
_FILE_TAG = 0x0A
_MORE = 0x80


class _LazyPool:
    """Descriptor pool to which files are added until one defines the message that is looked up.

    Each file follows its imports, and the files of an xDS client come first, so a client that uses
    little adds two thirds of them.
    """

    def __init__(self) -> None:
        self.pool: Final = _new_pool()
        self._files: Final = _split_files(_read_descriptors())
        self._lock: Final = RLock()
        # In the child of a fork nothing would release the lock of another thread, or add its file.
        register = getattr(os, "register_at_fork", None)
        if register is not None:
            acquire, release = self._lock.acquire, self._lock.release
            register(before=acquire, after_in_parent=release, after_in_child=release)

    def find(self, full_name: str) -> Descriptor:
        """The descriptor of a message; KeyError if no file defines it."""
        with self._lock:
            while True:
                try:
                    return self.pool.FindMessageTypeByName(full_name)
                except KeyError:
                    file = next(self._files, None)
                    if file is None:
                        raise
                self.pool.AddSerializedFile(file)

    def fill(self) -> None:
        with self._lock:
            for file in self._files:
                self.pool.AddSerializedFile(file)


# One per process, once it is made.
_pools: dict[str, _LazyPool] = {}


@functools.cache
def _lazy_pool() -> _LazyPool:
    # Loops in several threads may each have made one. All use the first, because messages of two
    # pools cannot be mixed; `setdefault` is atomic.
    return _pools.setdefault("envoy", _LazyPool())


def descriptor_pool_of_envoy() -> DescriptorPool:
    """The pool with all files, for formats such as proto-JSON."""
    found = _lazy_pool()
    found.fill()
    return found.pool


def _new_pool() -> DescriptorPool:
    if _IS_UPB:
        from google._upb import _message  # noqa: PLC0415

        # The public class is the same one, or a subclass of it.
        return cast("DescriptorPool", _message.DescriptorPool())
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    return descriptor_pool.DescriptorPool()


def _split_files(file_set: bytes) -> Iterator[bytes]:
    """The files of a `FileDescriptorSet`, whose own class would be slow to import."""
    at = 0
    while at < len(file_set):
        assert file_set[at] == _FILE_TAG, "a FileDescriptorSet has only this field"
        size = shift = 0
        while True:
            at += 1
            size |= (file_set[at] & ~_MORE) << shift
            shift += 7
            if not file_set[at] & _MORE:
                break
        start, at = at + 1, at + 1 + size
        yield file_set[start:at]


def _read_descriptors() -> bytes:
    path = os.path.join(os.path.dirname(__file__), "descriptors.pb")
    # The loader also reads from a zip archive. importlib.resources would do the same, and importing
    # it would take longer than the rest of this module.
    loader: Any = __spec__.loader
    try:
        data: bytes = loader.get_data(path)
    except FileNotFoundError:
        raise RuntimeError(
            f"{path} is missing: the build makes it; in a source checkout, run 'make env'"
        ) from None
    return data


@functools.cache
def message_class(full_name: str) -> type[Proto]:
    """The class of the message with this full name; KeyError if it has no descriptor."""
    descriptor = _lazy_pool().find(full_name)
    if _IS_UPB:
        from google._upb._message import MessageMeta  # noqa: PLC0415

        # As generated code does it. Classes of fields are created when they are first used.
        return MessageMeta(descriptor.name, (Message,), {"DESCRIPTOR": descriptor})
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    return GetMessageClass(descriptor)
