"""The `xds_override_host_experimental` policy: RPCs of a session go to the session's endpoint.

Specs: A55, A60, A75.

policy  config, picker and policy
choice  choice of the host for an RPC of a session
hosts   the addresses that sessions use, and the subchannels held for them
"""

from proxyless.xds.lb.override_host.policy import OverrideHostFactory

__all__ = ["OverrideHostFactory"]
