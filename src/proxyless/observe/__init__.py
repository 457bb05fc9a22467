"""Explanations of RPCs, lint of resources, and the admin services of a process.

explain           explanation of an RPC, given a config
explain_clusters  its clusters: leaves, priorities, endpoints, drops
explain_tls       the TLS settings of a cluster
explain_filters   the HTTP filters of its route
explain_sessions  its session
explain_lb        the result of a pick by the policies of a channel
explain_running   explanation of an RPC on a running channel, and of a failed one
offline           explanation of an RPC from resources without a control plane
csds              encoding and decoding of CSDS messages
csds_service      the CSDS service, for both kinds of grpcio servers
live              the live service and channelz: channels, clusters, endpoints, RPCs, events
flight            flight recorder: the last events, RPCs and resources, as a file on request
lint              findings about a resource: rejected, ignored, or interpreted differently
parsed_fields     the fields that the parsers read, and notes about others
lint_rules        findings about the combination of fields
lint_routes       findings about routes, domains and retries
lint_istio        settings of Istio behind ignored fields
lint_mesh         findings about several resources: unused ones, sessions, hashes, loops
findings          Finding, Severity, Audience
mesh_facts        facts of a mesh, to compare it with another
mesh_diff         changes from one mesh to another
methods           sample methods of a mesh

This package makes no decisions: `xds.view` and `lb.description` have the functions that decide, and
it describes their results. Of `xds` it imports the view and values only (`make layers`).
"""

from proxyless.base.explanation import Explanation, to_json, to_text
from proxyless.observe.csds import ClientStatus, ClientView, ResourceRow, encode_status, read_status
from proxyless.observe.csds_service import CSDS_SERVICE, add_csds_servicer
from proxyless.observe.explain import Rpc, explain
from proxyless.observe.explain_running import explain_channel, explain_error
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.observe.lint import LintContext, lint_message, unknown_bootstrap
from proxyless.observe.lint_mesh import LintedResource, lint_mesh
from proxyless.observe.offline import OfflineMesh, explain_offline

__all__ = [
    "CSDS_SERVICE",
    "Audience",
    "ClientStatus",
    "ClientView",
    "Explanation",
    "Finding",
    "LintContext",
    "LintedResource",
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
    "lint_mesh",
    "lint_message",
    "read_status",
    "to_json",
    "to_text",
    "unknown_bootstrap",
]
