"""Stubs and servicers for tests, generated from `tests/protos` by grpcio-tools.

They are generated again in each process, so that tests cover the installed release of the tools.
"""

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from grpc_tools import protoc

PROTO_DIR: Final = Path(__file__).parent / "protos"


@dataclass(frozen=True)
class Protos:
    """The generated modules. They have no types."""

    helloworld: Any
    helloworld_grpc: Any
    route_guide: Any
    route_guide_grpc: Any


@cache
def generate_protos() -> Protos:
    """Generate and import the modules, once: protobuf rejects a second copy of a file."""
    with TemporaryDirectory() as directory:
        names = [path.name for path in sorted(PROTO_DIR.glob("*.proto"))]
        options = (f"-I{PROTO_DIR}", f"--python_out={directory}", f"--grpc_python_out={directory}")
        code = protoc.main(["protoc", *options, *names])
        assert code == 0, f"protoc ended with {code} on {names}"
        # Generated modules import each other as top-level modules.
        sys.path.insert(0, directory)
        try:
            return Protos(
                import_module("helloworld_pb2"),
                import_module("helloworld_pb2_grpc"),
                import_module("route_guide_pb2"),
                import_module("route_guide_pb2_grpc"),
            )
        finally:
            sys.path.remove(directory)
