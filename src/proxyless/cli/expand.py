"""`proxyless expand FILE…`: prints the xDS resources of files, with the short form written out.

The resources are those that `serve` sends, for gRPC clients or, with `--for envoy`, for Envoy.
`--schema` prints the JSON Schema of the short form, for editors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from proxyless.base import ValidationErrors
from proxyless.cli.arguments import parse_address, refuse_options
from proxyless.cli.output import JSON, fail, print_json, print_lines
from proxyless.cli.resource_files import describe_errors, read_resources
from proxyless.controlplane.for_envoy import adapt_for_envoy
from proxyless.controlplane.proto_json import to_document
from proxyless.controlplane.short_form import short_form_schema

YAML: Final = "yaml"
ENVOY: Final = "envoy"

_LISTEN: Final = "127.0.0.1:10000"


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the xDS resources of FILE…, with the short form written out."
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="a file, a directory of files, or - for standard input",
    )
    parser.add_argument(
        "--for",
        dest="client",
        choices=(ENVOY,),
        help="resources for Envoy: listeners with a socket, clusters with HTTP/2",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_parse_listen,
        default=_LISTEN,
        help="address of Envoy's first listener; others get the next ports (default: %(default)s)",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of the short form instead"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=(YAML, JSON),
        default=YAML,
        help="output format (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def _parse_listen(text: str) -> str:
    if text.startswith("unix"):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted host:port")
    return parse_address(text)


def _check(parsed: argparse.Namespace) -> None:
    """Refuse arguments that have no effect, and missing ones."""
    if parsed.schema:
        for name, given in (("FILE", parsed.files), ("--for", parsed.client)):
            if given:
                parsed.parser.error(f"argument {name}: has no effect with --schema")
    elif not parsed.files:
        parsed.parser.error("the following arguments are required: FILE")
    if parsed.client != ENVOY:
        refuse_options(parsed, ["listen"], "without --for envoy")


def run(parsed: argparse.Namespace) -> int:
    """Print the resources; returns 1 if the files are bad."""
    _check(parsed)
    if parsed.schema:
        print_json(short_form_schema())
        return 0
    errors = ValidationErrors()
    resources = [resource for _, resource in read_resources(parsed.files, errors)]
    if not errors.ok:
        return fail("expand", describe_errors(errors))
    if parsed.client == ENVOY:
        resources = adapt_for_envoy(resources, parsed.listen)
    documents = [to_document(resource.message()) for resource in resources]
    if parsed.output == JSON:
        print_json({"resources": documents})
        return 0
    # PyYAML is in the extra proxyless[cli].
    from proxyless.controlplane.yaml_documents import dump_yaml  # noqa: PLC0415

    print_lines(dump_yaml(documents).rstrip("\n"))
    return 0
