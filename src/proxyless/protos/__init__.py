"""Message classes of Envoy's API, ORCA, channelz and our live service, in a private pool.

The build takes the descriptors from xds-protos and grpcio-channelz, and compiles our own
(tools/hatch_build.py). A private pool avoids conflicts with an application's copies of the same
files (docs/adr/0011-private-descriptors.md).

merging  parser of large messages in steps
"""

from __future__ import annotations

import functools
import os
import zlib
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["Proto", "descriptor_pool_of_envoy", "message_class"]

# A message. Its class is created at run time, so its fields have no types.
Proto: TypeAlias = Any


@functools.cache
def descriptor_pool_of_envoy() -> descriptor_pool.DescriptorPool:
    """The pool, for formats such as proto-JSON. It is filled on first use, in about 15 ms."""
    files = descriptor_pb2.FileDescriptorSet.FromString(zlib.decompress(_read_descriptors()))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _read_descriptors() -> bytes:
    # Importing importlib.resources would take longer than the rest of this module.
    path = os.path.join(os.path.dirname(__file__), "descriptors.bin")
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise RuntimeError(
            f"{path} is missing: the build makes it; in a source checkout, run 'make env'"
        ) from None


@functools.cache
def message_class(full_name: str) -> type[Proto]:
    """The class of the message with this full name; KeyError if it has no descriptor."""
    descriptor = descriptor_pool_of_envoy().FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)
