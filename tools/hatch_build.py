"""Build hooks: the descriptors of messages, and the README for package indexes.

`DescriptorHook` reads the descriptors of the files below, and of their imports, from
xds-protos and grpcio-channelz, compiles our own files, and writes all as one `FileDescriptorSet`
into `proxyless.protos`. Those packages are needed only here. Installed beside an application
xds-protos would break other packages: it has packages named `envoy`, `google` and `opencensus`
(docs/adr/0011-private-descriptors.md).

`ReadmeHook` removes relative links and images, which do not work on a package index.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

OUTPUT: Final = "src/proxyless/protos/descriptors.pb"

_CLIENT_SIDE_WRR: Final = (
    "envoy/extensions/load_balancing_policies/client_side_weighted_round_robin"
)
# Files of the first messages that an xDS client uses come first: it adds the files to its pool in
# this order, until it has found a message.
ROOTS: Final = (
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/extensions/load_balancing_policies/round_robin/v3/round_robin.proto",
    "envoy/extensions/load_balancing_policies/pick_first/v3/pick_first.proto",
    "envoy/extensions/load_balancing_policies/wrr_locality/v3/wrr_locality.proto",
    "envoy/extensions/clusters/aggregate/v3/cluster.proto",
    "envoy/extensions/filters/http/fault/v3/fault.proto",
    "envoy/extensions/filters/http/stateful_session/v3/stateful_session.proto",
    "envoy/extensions/http/stateful_session/cookie/v3/cookie.proto",
    f"{_CLIENT_SIDE_WRR}/v3/client_side_weighted_round_robin.proto",
    "envoy/extensions/load_balancing_policies/least_request/v3/least_request.proto",
    "envoy/extensions/load_balancing_policies/random/v3/random.proto",
    "envoy/extensions/load_balancing_policies/ring_hash/v3/ring_hash.proto",
    "envoy/extensions/transport_sockets/http_11_proxy/v3/upstream_http_11_connect.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/load_stats/v3/lrs.proto",
    "envoy/service/status/v3/csds.proto",
    "grpc_channelz/v1/channelz.proto",
    "udpa/type/v1/typed_struct.proto",
    "xds/data/orca/v3/orca_load_report.proto",
    "xds/service/orca/v3/orca.proto",
    "xds/type/v3/typed_struct.proto",
)

# Our own files, and the directory that their names start from.
OWN: Final = ("proxyless/live/v1/live.proto",)
OWN_DIRECTORY: Final = "src/proxyless/protos"

# Files that only define options of other files, which are not read at run time.
ANNOTATIONS: Final = (
    "envoy/annotations/",
    "udpa/annotations/",
    "validate/",
    "xds/annotations/",
)


def file_set(own: descriptor_pb2.FileDescriptorSet) -> descriptor_pb2.FileDescriptorSet:
    """The roots, our own files and their imports, each file after its imports."""
    for root in ROOTS:
        importlib.import_module(root.removesuffix(".proto").replace("/", ".") + "_pb2")
    pool = descriptor_pool.Default()
    own_files = {file.name: file for file in own.file}
    seen: set[str] = set()
    result = descriptor_pb2.FileDescriptorSet()

    def add(name: str) -> None:
        if name in seen or name.startswith(ANNOTATIONS):
            return
        seen.add(name)
        file = descriptor_pb2.FileDescriptorProto()
        if name in own_files:
            file.CopyFrom(own_files[name])
        else:
            pool.FindFileByName(name).CopyToProto(file)
        for dependency in file.dependency:
            add(dependency)
        result.file.append(_without_annotations(file))

    for root in (*ROOTS, *own_files):
        add(root)
    return result


def compile_own(directory: Path) -> descriptor_pb2.FileDescriptorSet:
    """The descriptors of our own files, without their imports."""
    protoc = importlib.import_module("grpc_tools.protoc")
    assert protoc.__file__ is not None, "it is a file of grpcio-tools"
    well_known = Path(protoc.__file__).with_name("_proto")
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "own.bin"
        arguments = [f"-I{directory}", f"-I{well_known}", f"--descriptor_set_out={output}", *OWN]
        if protoc.main(["protoc", *arguments]):
            raise RuntimeError(f"protoc rejected {', '.join(OWN)}")
        return descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())


def _without_annotations(
    file: descriptor_pb2.FileDescriptorProto,
) -> descriptor_pb2.FileDescriptorProto:
    kept = [name for name in file.dependency if not name.startswith(ANNOTATIONS)]
    del file.dependency[:]
    del file.public_dependency[:]
    del file.weak_dependency[:]
    file.dependency.extend(kept)
    file.ClearField("options")
    for message in file.message_type:
        _strip_message(message)
    for enum in file.enum_type:
        _strip_enum(enum)
    for service in file.service:
        service.ClearField("options")
        for method in service.method:
            method.ClearField("options")
    return file


def _strip_message(message: descriptor_pb2.DescriptorProto) -> None:
    is_map_entry = message.options.map_entry
    message.ClearField("options")
    if is_map_entry:
        message.options.map_entry = True
    for field in message.field:
        is_packed = field.options.packed if field.options.HasField("packed") else None
        field.ClearField("options")
        if is_packed is not None:
            field.options.packed = is_packed
    for oneof in message.oneof_decl:
        oneof.ClearField("options")
    for enum in message.enum_type:
        _strip_enum(enum)
    for nested in message.nested_type:
        _strip_message(nested)


def _strip_enum(enum: descriptor_pb2.EnumDescriptorProto) -> None:
    allows_alias = enum.options.allow_alias
    enum.ClearField("options")
    if allows_alias:
        enum.options.allow_alias = True
    for value in enum.value:
        value.ClearField("options")


class DescriptorHook(BuildHookInterface):  # type: ignore[misc]
    """Writes the descriptors before a wheel or an editable install is made."""

    PLUGIN_NAME = "descriptors"

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Write the set; the output depends only on the input."""
        output = Path(self.root) / OUTPUT
        files = file_set(compile_own(Path(self.root) / OWN_DIRECTORY))
        packed = files.SerializeToString(deterministic=True)
        if not output.exists() or output.read_bytes() != packed:
            output.write_bytes(packed)


_IMAGE: Final = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n\n?", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_RELATIVE_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?!https?://)[^)]*\)")


def without_relative_links(readme: str) -> str:
    """The README with the text of each relative link, and without images and directives."""
    readme = _DIRECTIVE.sub("", _IMAGE.sub("", readme))
    return _RELATIVE_LINK.sub(lambda link: link["text"], readme)


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """Sets the long description of the distribution."""

    PLUGIN_NAME = "readme"

    def update(self, metadata: dict[str, object]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = without_relative_links(readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
