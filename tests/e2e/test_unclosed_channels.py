"""Loops that are closed before their channels: one warning, which is not shown by default.

asyncio by itself would print 2 to 43 lines: "Task was destroyed but it is pending", "Event loop is
closed". grpcio prints nothing.
"""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, gc, socket, sys, time, warnings
import grpc
import proxyless.aio

state, loop_name, is_shown = sys.argv[1], sys.argv[2], sys.argv[3] == "shown"
shown = []
if is_shown:
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: shown.append(str(message))

def getaddrinfo(*args, **kwargs):
    time.sleep(3600)

socket.getaddrinfo = getaddrinfo
listener = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{listener.getsockname()[1]}"
kept = []

async def use():
    if state == "looking up":
        channel = proxyless.aio.insecure_channel("name.test:80")
    elif state == "tls handshake":
        channel = proxyless.aio.secure_channel(address, grpc.ssl_channel_credentials())
    else:
        channel = proxyless.aio.insecure_channel(address)
    kept.append(channel)
    channel.get_state(try_to_connect=True)
    if state == "rpc":
        kept.append(channel.unary_unary("/a/b")(b""))
    await asyncio.sleep(0.1)

if loop_name == "uvloop":
    import uvloop
    loop = uvloop.new_event_loop()
else:
    loop = asyncio.new_event_loop()
loop.run_until_complete(use())
loop.close()
kept.clear()
gc.collect()
# The others are of the loops, about their transports.
print([text for text in shown if "proxyless" in text])
listener.close()
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("state", ["looking up", "connecting", "tls handshake", "rpc"])
@pytest.mark.parametrize("is_shown", [False, True], ids=["by default", "with warnings"])
def test_loop_closed_before_its_channel_causes_one_warning(
    state: str, loop: str, is_shown: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, state, loop, "shown" if is_shown else "default"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    warnings = done.stdout.count("proxyless channel to ")
    assert warnings == is_shown, done.stdout
    assert done.stdout.count("was not closed before its event loop") == is_shown
