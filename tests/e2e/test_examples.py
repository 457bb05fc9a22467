"""The examples that extend a channel, on real sockets with real grpcio servers."""

import asyncio
import json
import os
import re
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

import proxyless
from examples import file_resolver
from examples.file_resolver import FileFactory
from examples.zone_aware_policy import ZONE, ZoneAwareFactory
from proxyless.base import OK, Endpoint, Status, StatusCode, ValidationErrors
from proxyless.lb import Update
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.resolver import ResolverContext, ResolverRegistry, ResolverResult
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random
from proxyless.testing import FakeHelper, State, Traits, address, check_policy

ROOT = Path(__file__).parents[2]
METHOD = "/example.Service/WhoAreYou"
PATIENCE_S = 20.0

# A server is called by its name, and answers with it.
Serve = Callable[[str], Awaitable[str]]
