"""Showing what happened, and why: what a process holds, and what it would do.

explain       why an RPC goes where it goes, given a config; explain_clusters what is there
explanation   the tree in which that is said, as text and as JSON
offline       the same for resources that no control plane serves
explain_lb    what the policies of a channel would answer now
explain_filters  what the HTTP filters of a route do to an RPC
explain_sessions  whether the session of an RPC decides where it goes
live          why an RPC on a running channel goes where it goes, and why one failed
csds          what the xDS clients of a process hold, as messages of CSDS, and read back from them
csds_service  the service that answers with it, for grpcio's servers of both kinds
lint          what clients would make of a resource: refuse, ignore, or take in their own way
understood    the fields that our parsers look at, and what is missed of the others
lint_rules    what else is worth saying about a message, and to whom
findings      what lint says

Nothing here decides anything about an RPC: `xds.view` and `lb.view` offer the decisions, and this
package puts them into words. Of `xds` it imports the view and values only (`make layers`).
"""

from proxyless.base.explanation import Explanation, to_json, to_text
from proxyless.observe.csds import ClientStatus, ClientView, ResourceRow, encode_status, read_status
from proxyless.observe.csds_service import CSDS_SERVICE, ClientsByLoop, add_csds_servicer
from proxyless.observe.explain import Rpc, explain
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.observe.lint import LintContext, lint_message, unknown_bootstrap
from proxyless.observe.live import explain_channel, explain_error
from proxyless.observe.offline import OfflineMesh, explain_offline, resolve_offline

__all__ = [
    "CSDS_SERVICE",
    "Audience",
    "ClientStatus",
    "ClientView",
    "ClientsByLoop",
    "Explanation",
    "Finding",
    "LintContext",
    "OfflineMesh",
    "ResourceRow",
    "Rpc",
    "Severity",
    "add_csds_servicer",
    "encode_status",
    "explain",
    "explain_channel",
    "explain_error",
    "explain_offline",
    "lint_message",
    "read_status",
    "resolve_offline",
    "to_json",
    "to_text",
    "unknown_bootstrap",
]
