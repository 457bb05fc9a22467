"""Unit tests of tools.peers.decisions.voice."""

import asyncio
import sys

import pytest

from tools.peers.decisions.voice import Command, Rpc, VoiceEndedError, running_voice

# Replies to two commands in the opposite order, with their methods.
PROGRAM = """
import json, sys
first, second = (json.loads(sys.stdin.readline()) for _ in range(2))
for command in (second, first):
    rpc = {"code": "OK", "details": "", "reply": command["method"], "seconds": 1.5, "cookies": []}
    print(json.dumps({"id": command["id"], "rpcs": [rpc] * command["count"]}), flush=True)
"""


async def test_reply_goes_to_its_command() -> None:
    async with running_voice([sys.executable, "-c", PROGRAM], {}) as voice:
        first, second = await asyncio.gather(
            voice.call(Command("xds:///a", "/first")),
            voice.call(Command("xds:///a", "/second", count=2)),
        )
    assert first == [Rpc("OK", "", "/first", 1.5, [])]
    assert [each.reply for each in second] == ["/second", "/second"]


async def test_call_fails_when_the_process_ends() -> None:
    async with running_voice([sys.executable, "-c", "input()"], {}) as voice:
        with pytest.raises(VoiceEndedError):
            await voice.call(Command("xds:///a", "/first"))
        with pytest.raises(VoiceEndedError):
            await voice.call(Command("xds:///a", "/second"))
