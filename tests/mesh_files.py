"""Meshes as files for the control plane, `lint` and `explain`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from proxyless.controlplane import Resource
from proxyless.protos import Proto, descriptor_pool_of_envoy


def to_document(message: Proto) -> dict[str, Any]:
    """A resource in proto-JSON, with its type."""
    fields = json_format.MessageToDict(message, descriptor_pool=descriptor_pool_of_envoy())
    return {"@type": f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **fields}


def write_resources(path: Path, resources: Iterable[Resource]) -> None:
    path.write_text(json.dumps([to_document(resource.message()) for resource in resources]))
