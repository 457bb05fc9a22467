"""`proxyless init DIR`: writes files of a small mesh: resources, bootstrap, backends and a client.

The mesh has a canary and a second zone. No file that exists is overwritten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.cli.arguments import parse_address
from proxyless.cli.output import fail, print_lines
from proxyless.controlplane.short_form import short_form_schema

if TYPE_CHECKING:
    import argparse

_LISTEN: Final = "127.0.0.1:18000"
_SCHEMA_FILE: Final = "short-form.schema.json"

_MESH: Final = """\
# yaml-language-server: $schema=../short-form.schema.json
service: orders
routes:
- to: {orders: 90, canary: 10}
  timeout: 2s
  retry: {codes: [unavailable], times: 1}
clusters:
  orders:
    endpoints:
    - {zone: a, addresses: [127.0.0.1:50061]}
    - {zone: b, priority: 1, addresses: [127.0.0.1:50062]}
  canary:
    endpoints:
    - {zone: a, addresses: [127.0.0.1:50063]}
"""

_OUTAGE: Final = """\
target: xds:///orders
method: /shop.Orders/Get
duration: 90s
events:
- {at: 30s, kill: {zone: a, cluster: orders}, for: 30s}
expect:
- {failed: 0, to: 30s}
- {only_zones: [a], to: 30s}
- {failover_within: 1s, error_rate_below: 1%}
"""

_BACKENDS: Final = '''\
"""Backends, each of which returns its own name: python backends.py [NAME...]"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


def start(name: str, port: int) -> grpc.Server:
    get = grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("shop.Orders", {"Get": get})]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


if __name__ == "__main__":
    ports = {"a": 50061, "b": 50062, "canary": 50063}
    names = sys.argv[1:] or list(ports)
    if not ports.keys() >= set(names):
        sys.exit(f"names are {names}, wanted some of {list(ports)}")
    servers = [start(name, ports[name]) for name in names]
    print(f"running: {', '.join(names)}", flush=True)
    servers[0].wait_for_termination()
'''

_CLIENT: Final = '''\
"""Sends RPCs through the mesh, and prints the backends that answered: python client.py"""

import sys
from collections import Counter
from pathlib import Path

import grpc

import proxyless

BOOTSTRAP = Path(__file__).with_name("bootstrap.json")

if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with proxyless.insecure_channel("xds:///orders", bootstrap=BOOTSTRAP) as channel:
        get = channel.unary_unary("/shop.Orders/Get")
        try:
            print(Counter(get(b"", timeout=5).decode() for _ in range(times)))
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
        print(channel.explain("/shop.Orders/Get"))
'''


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make a mesh, a bootstrap, backends and a client in DIR to start from."
    parser.add_argument("directory", metavar="DIR", type=Path, help="a directory, made if missing")
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        type=parse_address,
        default=_LISTEN,
        help="address of the control plane, for the bootstrap (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the files; returns 1, and writes nothing, if one exists."""
    directory: Path = parsed.directory
    files = _make_files(parsed.listen)
    existing = [directory / name for name in files if (directory / name).exists()]
    if existing:
        return fail("init", [f"{path} exists, wanted a new file" for path in existing])
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print_lines(f"wrote {path}")
    except OSError as error:
        return fail("init", [f"{error.filename!r} cannot be written: {error.strerror}"])
    print_lines(_describe_next(directory, parsed.listen))
    return 0


def _make_files(address: str) -> dict[str, str]:
    """Texts by the names of files."""
    bootstrap = {
        "xds_servers": [
            {
                "server_uri": address,
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {"id": "orders-client"},
    }
    return {
        "mesh/orders.yaml": _MESH,
        "bootstrap.json": f"{json.dumps(bootstrap, indent=2)}\n",
        "backends.py": _BACKENDS,
        "client.py": _CLIENT,
        "outage.yaml": _OUTAGE,
        _SCHEMA_FILE: f"{json.dumps(short_form_schema(), indent=2)}\n",
    }


def _describe_next(directory: Path, address: str) -> str:
    listen = "" if address == _LISTEN else f" --listen {address}"
    return "\n".join(
        (
            "",
            f"In {directory}, each in a terminal of its own:",
            f"  proxyless serve mesh{listen}",
            "  python backends.py",
            "  python client.py",
            "While they run:",
            "  proxyless explain shop.Orders/Get --target xds:///orders --bootstrap bootstrap.json",
            "Without any of them:",
            "  proxyless lint mesh",
            "  proxyless simulate mesh --script outage.yaml",
        )
    )
