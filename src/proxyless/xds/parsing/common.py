"""Moved: import from `proxyless.xds.proto_fields` (tidy refuses this name). This file goes away soon."""

from proxyless.xds.proto_fields import *  # noqa: F403
