"""Where do the messages of Envoy's API and of ORCA come from?

From descriptors that the build took out of xds-protos (tools/hatch_build.py), in a pool of our own:
an application's own copies of the same files, whatever their version, never meet ours
(docs/adr/0011-private-descriptors.md).

- `message_class("envoy.config.route.v3.Route")` is the class of a message.
- `descriptor_pool_of_envoy()` is the pool, for formats that look types up by name: proto-JSON.
"""

from __future__ import annotations

import functools
import os
import zlib
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["Proto", "descriptor_pool_of_envoy", "message_class"]

# A message whose class was made at run time: no stub describes its fields.
Proto: TypeAlias = Any


@functools.cache
def descriptor_pool_of_envoy() -> descriptor_pool.DescriptorPool:
    """The pool, filled at its first use: about 15 ms that a plain DNS channel never pays."""
    files = descriptor_pb2.FileDescriptorSet.FromString(zlib.decompress(_read_descriptors()))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _read_descriptors() -> bytes:
    # Not by importlib.resources: importing that takes longer than all the rest of this.
    path = os.path.join(os.path.dirname(__file__), "descriptors.bin")
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        # The package was not built: its sources stand on the path, without an install.
        raise RuntimeError(
            f"{path} is missing: the build makes it; in a source checkout, run 'make env'"
        ) from None


@functools.cache
def message_class(full_name: str) -> type[Proto]:
    """The class of the message with this full name; KeyError if the package does not carry it."""
    descriptor = descriptor_pool_of_envoy().FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)
