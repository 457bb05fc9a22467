"""`proxyless serve PATH...`: serves the resources in files and directories to xDS clients.

It logs each snapshot, connection, NACK, and request for a resource that is not there. If a file is
bad or empty after a change, it logs the error and keeps serving the last good snapshot.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationError, one_line
from proxyless.base.texts import escape_json
from proxyless.cli.arguments import parse_address
from proxyless.cli.output import JSON, fail

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

DEFAULT_ADDRESS: Final = "127.0.0.1:18000"
TEXT: Final = "text"
ALLOW_EMPTY: Final = "--allow-empty"


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve the resources in files, and in the files below directories, to xDS clients; "
        "reload on changes. A change that is invalid or would remove everything is not served."
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="a file, or a directory of files"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        type=parse_address,
        default=DEFAULT_ADDRESS,
        help="host:port or unix:path (default: %(default)s; port 0 for any free port)",
    )
    parser.add_argument(
        ALLOW_EMPTY, action="store_true", help="serve empty files, and no resources at all"
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate chain, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="private key, in PEM")
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        type=Path,
        help="roots of client certificates, in PEM; clients without one are rejected (mTLS)",
    )
    parser.add_argument("--once-check", action="store_true", help="check the files and exit")
    parser.add_argument(
        "-o",
        "--output",
        choices=(TEXT, JSON),
        default=TEXT,
        help="format of the log (default: %(default)s)",
    )
    parser.set_defaults(run=run)


class OneLineFormatter(logging.Formatter):
    """Formatter that escapes and truncates messages: they have texts of clients."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in logging
        record.message = one_line(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return escape_json(json.dumps(fields, ensure_ascii=False))


def run(parsed: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; returns 1 if the files are bad or the address is in use."""
    if (parsed.tls_cert is None) != (parsed.tls_key is None):
        parsed.parser.error("--tls-cert and --tls-key are given together or not at all")
    if parsed.tls_client_ca is not None and parsed.tls_cert is None:
        parsed.parser.error("--tls-client-ca needs --tls-cert and --tls-key")
    handler = logging.StreamHandler(sys.stderr)
    text_format = OneLineFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if parsed.output == JSON else text_format)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    if parsed.output == JSON:
        # The C++ core of grpcio writes lines of its own, which are no JSON. It reads the variable
        # when grpcio is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from proxyless.cli import serving  # noqa: PLC0415 - as above
    from proxyless.cli.resource_files import describe_errors  # noqa: PLC0415 - as above

    try:
        if parsed.once_check:
            serving.check(parsed)
        else:
            asyncio.run(serving.serve(parsed))
    except ValidationError as error:
        context = ", ".join(map(str, parsed.paths))
        if len(parsed.paths) == 1 and parsed.paths[0].is_dir():
            return _fail(parsed, describe_errors(error.errors, context))
        # The place of an error begins with the file, unless it is about all paths.
        lines = [f"{place or context}: {text}" for place, text in error.errors.items()]
        return _fail(parsed, lines)
    except OSError as error:
        return _fail(parsed, [str(error)])
    return 0


def _fail(parsed: argparse.Namespace, lines: Iterable[str]) -> int:
    if parsed.output != JSON:
        return fail("serve", lines)
    for line in lines:
        logging.getLogger("proxyless.serve").critical("%s", line)
    return 1
