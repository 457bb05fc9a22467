"""gRPC's instruments.

Specs: A66 (per call and per attempt), A78 (pick_first, weighted_round_robin, XdsClient), A89
(backend service), A91 (outlier detection), A94 (subchannels), A96 (retries), A108 (custom label).
Names, units, labels and boundaries are those of the gRFCs, so that a dashboard for another gRPC
implementation works with this one. Instruments that no gRFC has begin with `proxyless.`.
"""

from typing import Final

from proxyless.metrics.api import Instrument, Kind

# Label value of methods and targets that are not recorded by name.
OTHER: Final = "other"

METHOD: Final = "grpc.method"
TARGET: Final = "grpc.target"
STATUS: Final = "grpc.status"
LOCALITY: Final = "grpc.lb.locality"
BACKEND_SERVICE: Final = "grpc.lb.backend_service"
CUSTOM: Final = "grpc.client.call.custom"
DISCONNECT_ERROR: Final = "grpc.disconnect_error"
SECURITY_LEVEL: Final = "grpc.security_level"
DETECTION_METHOD: Final = "grpc.lb.outlier_detection.detection_method"
UNENFORCED_REASON: Final = "grpc.lb.outlier_detection.unenforced_reason"
DROP_CATEGORY: Final = "proxyless.drop_category"
DELAY_TYPE: Final = "grpc.delay_type"
XDS_SERVER: Final = "grpc.xds.server"
XDS_AUTHORITY: Final = "grpc.xds.authority"
XDS_CACHE_STATE: Final = "grpc.xds.cache_state"
XDS_RESOURCE_TYPE: Final = "grpc.xds.resource_type"

# Seconds. "Buckets for histograms in default views should be as follows" - A66
LATENCY_BOUNDARIES: Final = (
    *(0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008),
    *(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008),
    *(0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08),
    *(0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
# Bytes.
SIZE_BOUNDARIES: Final = (
    *(0.0, 1024.0, 2048.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0),
    *(16777216.0, 67108864.0, 268435456.0, 1073741824.0, 4294967296.0),
)

# RPCs (A66; optional labels: A78, A89, A108)

_OF_CALL: Final = (METHOD, TARGET)
_OF_ATTEMPT: Final = (METHOD, TARGET, STATUS)
_OF_PICK: Final = (LOCALITY, BACKEND_SERVICE)
_OF_ATTEMPT_END: Final = (LOCALITY, BACKEND_SERVICE, CUSTOM)

ATTEMPT_STARTED: Final = Instrument(
    "grpc.client.attempt.started",
    Kind.COUNTER,
    "{attempt}",
    "Attempts that were started, including those that have not ended.",
    _OF_CALL,
    (CUSTOM,),
    is_default=True,
)
ATTEMPT_DURATION: Final = Instrument(
    "grpc.client.attempt.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of an attempt, from before its pick to its end.",
    _OF_ATTEMPT,
    _OF_ATTEMPT_END,
    is_default=True,
    boundaries=LATENCY_BOUNDARIES,
)
ATTEMPT_SENT: Final = Instrument(
    "grpc.client.attempt.sent_total_compressed_message_size",
    Kind.HISTOGRAM,
    "By",
    "Compressed size of all messages that an attempt sent, without framing.",
    _OF_ATTEMPT,
    _OF_ATTEMPT_END,
    is_default=True,
    boundaries=SIZE_BOUNDARIES,
)
ATTEMPT_RECEIVED: Final = Instrument(
    "grpc.client.attempt.rcvd_total_compressed_message_size",
    Kind.HISTOGRAM,
    "By",
    "Compressed size of all messages that an attempt received, without framing.",
    _OF_ATTEMPT,
    _OF_ATTEMPT_END,
    is_default=True,
    boundaries=SIZE_BOUNDARIES,
)
CALL_DURATION: Final = Instrument(
    "grpc.client.call.duration",
    Kind.HISTOGRAM,
    "s",
    "Duration of an RPC from the application's view, including all attempts.",
    _OF_ATTEMPT,
    (CUSTOM,),
    is_default=True,
    boundaries=LATENCY_BOUNDARIES,
)

# Retries and hedges of RPCs (A96)

CALL_RETRIES: Final = Instrument(
    "grpc.client.call.retries",
    Kind.HISTOGRAM,
    "{retry}",
    "Retries of an RPC, if there were any.",
    _OF_CALL,
    (CUSTOM,),
    boundaries=(1.0, 2.0, 3.0, 4.0, 5.0),
)
CALL_TRANSPARENT_RETRIES: Final = Instrument(
    "grpc.client.call.transparent_retries",
    Kind.HISTOGRAM,
    "{transparent_retry}",
    "Transparent retries of an RPC, if there were any.",
    _OF_CALL,
    (CUSTOM,),
    boundaries=(1.0, 2.0, 3.0, 4.0, 5.0, 10.0),
)
CALL_HEDGES: Final = Instrument(
    "grpc.client.call.hedges",
    Kind.HISTOGRAM,
    "{hedge}",
    "Hedges of an RPC, without its first attempt, if there were any.",
    _OF_CALL,
    (CUSTOM,),
    boundaries=(1.0, 2.0, 3.0, 4.0, 5.0),
)
CALL_RETRY_DELAY: Final = Instrument(
    "grpc.client.call.retry_delay",
    Kind.HISTOGRAM,
    "s",
    "Time of a retried RPC without an active attempt, before its last attempt.",
    _OF_CALL,
    (CUSTOM,),
    boundaries=LATENCY_BOUNDARIES,
)

# Delays of RPCs and attempts (A121, a draft)

_OF_DELAY: Final = (TARGET, DELAY_TYPE)

CALL_DELAY: Final = Instrument(
    "grpc.client.call.delay.duration",
    Kind.HISTOGRAM,
    "s",
    "Time that an RPC waited before its first attempt, such as for name resolution.",
    _OF_DELAY,
    (METHOD, CUSTOM),
    boundaries=LATENCY_BOUNDARIES,
)
ATTEMPT_DELAY: Final = Instrument(
    "grpc.client.attempt.delay.duration",
    Kind.HISTOGRAM,
    "s",
    "Time that an attempt waited for its pick, a connection, or to send its first messages.",
    _OF_DELAY,
    (METHOD, CUSTOM),
    boundaries=LATENCY_BOUNDARIES,
)

# Connections of subchannels (A94)

_OF_SUBCHANNEL: Final = (BACKEND_SERVICE, LOCALITY)

SUBCHANNEL_DISCONNECTIONS: Final = Instrument(
    "grpc.subchannel.disconnections",
    Kind.COUNTER,
    "{disconnection}",
    "Times that a subchannel lost or closed its connection.",
    (TARGET,),
    (*_OF_SUBCHANNEL, DISCONNECT_ERROR),
)
SUBCHANNEL_ATTEMPTS_SUCCEEDED: Final = Instrument(
    "grpc.subchannel.connection_attempts_succeeded",
    Kind.COUNTER,
    "{attempt}",
    "Connection attempts that succeeded.",
    (TARGET,),
    _OF_SUBCHANNEL,
)
SUBCHANNEL_ATTEMPTS_FAILED: Final = Instrument(
    "grpc.subchannel.connection_attempts_failed",
    Kind.COUNTER,
    "{attempt}",
    "Connection attempts that failed.",
    (TARGET,),
    _OF_SUBCHANNEL,
)
SUBCHANNEL_OPEN_CONNECTIONS: Final = Instrument(
    "grpc.subchannel.open_connections",
    Kind.UP_DOWN_COUNTER,
    "{connection}",
    "Open connections.",
    (TARGET,),
    (SECURITY_LEVEL, *_OF_SUBCHANNEL),
)

# The policy pick_first (A78; replaced by those of subchannels: A94)

PICK_FIRST_DISCONNECTIONS: Final = Instrument(
    "grpc.lb.pick_first.disconnections",
    Kind.COUNTER,
    "{disconnection}",
    "Times that the selected subchannel lost its connection.",
    (TARGET,),
    is_replaced=True,
)
PICK_FIRST_ATTEMPTS_SUCCEEDED: Final = Instrument(
    "grpc.lb.pick_first.connection_attempts_succeeded",
    Kind.COUNTER,
    "{attempt}",
    "Connection attempts that succeeded.",
    (TARGET,),
    is_replaced=True,
)
PICK_FIRST_ATTEMPTS_FAILED: Final = Instrument(
    "grpc.lb.pick_first.connection_attempts_failed",
    Kind.COUNTER,
    "{attempt}",
    "Connection attempts that failed.",
    (TARGET,),
    is_replaced=True,
)

# The policy weighted_round_robin (A78; backend service: A89; slow start: A100, a draft)

WRR_FALLBACK: Final = Instrument(
    "grpc.lb.wrr.rr_fallback",
    Kind.COUNTER,
    "{update}",
    "Weight updates with too few usable weights: the policy fell back to round robin.",
    (TARGET,),
    _OF_PICK,
)
WRR_NOT_YET_USABLE: Final = Instrument(
    "grpc.lb.wrr.endpoint_weight_not_yet_usable",
    Kind.COUNTER,
    "{endpoint}",
    "Endpoints of each update that reported no load yet, or only within the blackout period.",
    (TARGET,),
    _OF_PICK,
)
WRR_STALE: Final = Instrument(
    "grpc.lb.wrr.endpoint_weight_stale",
    Kind.COUNTER,
    "{endpoint}",
    "Endpoints of each update whose last report is older than the expiration period.",
    (TARGET,),
    _OF_PICK,
)
WRR_WEIGHTS: Final = Instrument(
    "grpc.lb.wrr.endpoint_weights",
    Kind.HISTOGRAM,
    "{weight}",
    "The weight of each endpoint at each update; 0 if it has no usable weight.",
    (TARGET,),
    _OF_PICK,
)
WRR_SLOW_START: Final = Instrument(
    "grpc.lb.wrr.endpoints_in_slow_start",
    Kind.COUNTER,
    "{endpoint}",
    "Endpoints of each update that are in the slow start window.",
    (TARGET,),
    _OF_PICK,
)

# The policy outlier_detection (A91)

EJECTIONS_ENFORCED: Final = Instrument(
    "grpc.lb.outlier_detection.ejections_enforced",
    Kind.COUNTER,
    "{ejection}",
    "Outliers that were ejected.",
    (TARGET, DETECTION_METHOD),
    (BACKEND_SERVICE,),
)
EJECTIONS_UNENFORCED: Final = Instrument(
    "grpc.lb.outlier_detection.ejections_unenforced",
    Kind.COUNTER,
    "{ejection}",
    "Outliers that were detected and not ejected.",
    (TARGET, DETECTION_METHOD, UNENFORCED_REASON),
    (BACKEND_SERVICE,),
)

# The policy xds_cluster_impl (no gRFC has metrics for it)

CLUSTER_DROPS: Final = Instrument(
    "proxyless.xds_cluster.drops",
    Kind.COUNTER,
    "{rpc}",
    "RPCs that the drop policy of a cluster ended (A27).",
    (TARGET, DROP_CATEGORY),
    (BACKEND_SERVICE,),
)
CIRCUIT_BREAKER_DROPS: Final = Instrument(
    "proxyless.xds_cluster.circuit_breaker_drops",
    Kind.COUNTER,
    "{rpc}",
    "RPCs that the circuit breaker of a cluster ended (A32).",
    (TARGET,),
    (BACKEND_SERVICE,),
)

# Mirrored RPCs (no gRFC has them)

MIRRORED_RPCS: Final = Instrument(
    "proxyless.mirror.rpcs",
    Kind.COUNTER,
    "{rpc}",
    "Copies of RPCs for a mirror cluster, by the status with which they ended.",
    (TARGET, STATUS),
    (BACKEND_SERVICE,),
)
MIRRORED_RPCS_DROPPED: Final = Instrument(
    "proxyless.mirror.dropped_rpcs",
    Kind.COUNTER,
    "{rpc}",
    "Copies of RPCs that were not sent, because too many were in flight.",
    (TARGET,),
    (BACKEND_SERVICE,),
)

# The client of control planes (A78)

XDS_CONNECTED: Final = Instrument(
    "grpc.xds_client.connected",
    Kind.GAUGE,
    "{bool}",
    "1 while the client has a working ADS stream to the xDS server, else 0.",
    (TARGET, XDS_SERVER),
)
XDS_SERVER_FAILURE: Final = Instrument(
    "grpc.xds_client.server_failure",
    Kind.COUNTER,
    "{failure}",
    "Times that an xDS server went from healthy to unhealthy.",
    (TARGET, XDS_SERVER),
)
XDS_UPDATES_VALID: Final = Instrument(
    "grpc.xds_client.resource_updates_valid",
    Kind.COUNTER,
    "{resource}",
    "Valid resources that were received, changed or not.",
    (TARGET, XDS_SERVER, XDS_RESOURCE_TYPE),
)
XDS_UPDATES_INVALID: Final = Instrument(
    "grpc.xds_client.resource_updates_invalid",
    Kind.COUNTER,
    "{resource}",
    "Invalid resources that were received.",
    (TARGET, XDS_SERVER, XDS_RESOURCE_TYPE),
)
XDS_RESOURCES: Final = Instrument(
    "grpc.xds_client.resources",
    Kind.GAUGE,
    "{resource}",
    "Resources that the client watches, by cache state.",
    (TARGET, XDS_AUTHORITY, XDS_CACHE_STATE, XDS_RESOURCE_TYPE),
)
XDS_SAVED_RESOURCES: Final = Instrument(
    "proxyless.xds_client.saved_resources",
    Kind.GAUGE,
    "{resource}",
    "Resources in use from the config cache, because no xDS server has sent them yet.",
    (TARGET,),
)
XDS_HELD_CONFIGS: Final = Instrument(
    "proxyless.xds_client.held_configs",
    Kind.COUNTER,
    "{config}",
    "Times that the routes in force were held because no xDS server answered.",
    (TARGET,),
)

# All instruments, for plugins that select them by name.
INSTRUMENTS: Final = (
    *(ATTEMPT_STARTED, ATTEMPT_DURATION, ATTEMPT_SENT, ATTEMPT_RECEIVED, CALL_DURATION),
    *(CALL_RETRIES, CALL_TRANSPARENT_RETRIES, CALL_HEDGES, CALL_RETRY_DELAY),
    *(CALL_DELAY, ATTEMPT_DELAY),
    *(SUBCHANNEL_DISCONNECTIONS, SUBCHANNEL_ATTEMPTS_SUCCEEDED, SUBCHANNEL_ATTEMPTS_FAILED),
    SUBCHANNEL_OPEN_CONNECTIONS,
    *(PICK_FIRST_DISCONNECTIONS, PICK_FIRST_ATTEMPTS_SUCCEEDED, PICK_FIRST_ATTEMPTS_FAILED),
    *(WRR_FALLBACK, WRR_NOT_YET_USABLE, WRR_STALE, WRR_WEIGHTS, WRR_SLOW_START),
    *(EJECTIONS_ENFORCED, EJECTIONS_UNENFORCED, CLUSTER_DROPS, CIRCUIT_BREAKER_DROPS),
    *(MIRRORED_RPCS, MIRRORED_RPCS_DROPPED),
    *(XDS_CONNECTED, XDS_SERVER_FAILURE, XDS_UPDATES_VALID, XDS_UPDATES_INVALID, XDS_RESOURCES),
    *(XDS_HELD_CONFIGS, XDS_SAVED_RESOURCES),
)
