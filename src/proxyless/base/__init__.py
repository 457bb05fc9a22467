"""Values that every other package uses: no I/O, no clock, no event loop.

status        StatusCode, Status, OK
metadata      Metadata: validation, encoding, decoding
connectivity  State: IDLE, CONNECTING, READY, TRANSIENT_FAILURE, SHUTDOWN
endpoint      IpAddress, UnixAddress, Endpoint, Locality
attributes    Attributes of an endpoint or update, by typed key
http_proxy    HTTP proxy of an endpoint
backoff       delays between connection attempts
texts         text from outside in error texts and log lines: quote, one_line
explanation   Explanation: a tree of sentences
validation    ValidationErrors: errors of an input, by field path
trace         named events for logs, explain, checkers and tests
frozen        decorator of immutable value classes
lazy_exports  names of a package that are imported when they are first used
percent       percent-encoding of text and bytes
environment   flags of the process environment
durations     parser of times in files that people write
json_fields   reader of JSON objects: typed fields, errors by field path
"""

from proxyless.base.attributes import EMPTY as EMPTY_ATTRIBUTES
from proxyless.base.attributes import Attributes, Key
from proxyless.base.backoff import Backoff, BackoffPolicy
from proxyless.base.connectivity import State
from proxyless.base.endpoint import (
    Address,
    Endpoint,
    IpAddress,
    Locality,
    UnixAddress,
    parse_address,
)
from proxyless.base.http_proxy import HTTP_PROXY, HttpProxy
from proxyless.base.metadata import EMPTY as EMPTY_METADATA
from proxyless.base.metadata import (
    RESERVED_KEYS,
    InvalidMetadataError,
    Metadata,
    decode_field,
    encode_metadata,
    validate_metadata,
)
from proxyless.base.status import OK, Status, StatusCode
from proxyless.base.texts import one_line, quote
from proxyless.base.trace import NULL as NULL_TRACE
from proxyless.base.trace import Event, Sink, Trace, hits
from proxyless.base.validation import ValidationError, ValidationErrors

__all__ = [
    "EMPTY_ATTRIBUTES",
    "EMPTY_METADATA",
    "HTTP_PROXY",
    "NULL_TRACE",
    "OK",
    "RESERVED_KEYS",
    "Address",
    "Attributes",
    "Backoff",
    "BackoffPolicy",
    "Endpoint",
    "Event",
    "HttpProxy",
    "InvalidMetadataError",
    "IpAddress",
    "Key",
    "Locality",
    "Metadata",
    "Sink",
    "State",
    "Status",
    "StatusCode",
    "Trace",
    "UnixAddress",
    "ValidationError",
    "ValidationErrors",
    "decode_field",
    "encode_metadata",
    "hits",
    "one_line",
    "parse_address",
    "quote",
    "validate_metadata",
]
