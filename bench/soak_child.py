"""The process of one client of the soak: sends RPCs at a fixed rate and counts the failed ones.

    python -m bench.soak_child NAME CONTROL_PLANE RATE RPCS

The first line on stdout says that the first RPC has succeeded; a line on stdin starts the RPCs; the
last line on stdout is the result, in JSON.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TextIO

import grpc
import grpc.aio

from bench.clients import METHOD, TARGET
from bench.clients.grpc_aio_xds import make_bootstrap
from bench.pacing import run_paced
from bench.samples import percentile

OURS: Final = "proxyless"
REFERENCE: Final = "grpcio"
PAYLOAD: Final = b"0123456789abcdef"
# Long enough for every wait that ends well; an RPC that takes longer has failed.
TIMEOUT_S: Final = 5.0
FIRST_TIMEOUT_S: Final = 20.0
# Different texts of failures in a result, and characters of each.
TEXTS_MAX: Final = 5
CHARACTERS_MAX: Final = 300


def open_channel(name: str, control_plane: str) -> Any:  # noqa: ANN401 - of either library
    bootstrap = make_bootstrap(control_plane) | {"node": {"id": f"soak-{name}"}}
    if name == REFERENCE:
        os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(bootstrap)
        return grpc.aio.insecure_channel(TARGET)
    import proxyless  # noqa: PLC0415 - not in the process of the reference

    return proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap)


class Caller:
    """Calls the method, and records how the RPCs ended."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - of either library
        self._call = channel.unary_unary(METHOD)
        self.latencies_s: list[float] = []
        self.codes: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()

    async def call(self) -> None:
        begin_s = time.perf_counter()
        try:
            await self._call(PAYLOAD, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            self.codes[code] += 1
            text = f"{code}: {details[:CHARACTERS_MAX]}"
            if text in self.texts or len(self.texts) < TEXTS_MAX:
                self.texts[text] += 1
        self.latencies_s.append(time.perf_counter() - begin_s)

    def result(self) -> Mapping[str, object]:
        ordered = sorted(self.latencies_s)
        return {
            "rpcs": len(ordered),
            "failed": self.codes.total(),
            "codes": dict(self.codes),
            "texts": dict(self.texts),
            "p50_ms": percentile(ordered, 0.5) * 1000,
            "p99_ms": percentile(ordered, 0.99) * 1000,
            "max_ms": ordered[-1] * 1000,
        }


async def run(name: str, control_plane: str, rate_per_s: float, rpcs: int) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    async with open_channel(name, control_plane) as channel:
        first = channel.unary_unary(METHOD)
        await first(PAYLOAD, timeout=FIRST_TIMEOUT_S, wait_for_ready=True)
        answer(answers, {"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        caller = Caller(channel)
        await run_paced(caller.call, rate_per_s, rpcs / rate_per_s)
        answer(answers, caller.result())
        # The channel stays open until the parent has seen that it has the newest config.
        await asyncio.to_thread(sys.stdin.readline)


def answer(answers: TextIO, value: Mapping[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name, control_plane, rate_per_s, rpcs = sys.argv[1:]
    asyncio.run(run(name, control_plane, float(rate_per_s), int(rpcs)))


if __name__ == "__main__":
    main()
