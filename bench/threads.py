"""Workers of `bench.child` for blocking clients, as threads.

Every thread makes its next call when the last one has ended. The measuring thread sleeps meanwhile.
"""

import time
from collections.abc import Callable
from threading import Thread

from bench.clients import BlockingClient
from bench.samples import Sample, percentile
from bench.workloads import Workload

NANOSECONDS_PER_MICROSECOND = 1000.0


class Workers:
    """The threads of one turn, and their counts."""

    def __init__(self) -> None:
        self.is_running = True
        self.operations: list[int] = []
        self.errors: list[BaseException] = []

    def run(self, worker: Callable[["Workers"], int], concurrency: int, duration_s: float) -> int:
        """Run `concurrency` threads for a while; returns the sum of their operations."""
        threads = [Thread(target=self._work, args=(worker,)) for _ in range(concurrency)]
        for thread in threads:
            thread.start()
        time.sleep(duration_s)
        self.is_running = False
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        return sum(self.operations)

    def _work(self, worker: Callable[["Workers"], int]) -> None:
        try:
            self.operations.append(worker(self))
        except BaseException as error:
            self.errors.append(error)


def warm_up_blocking(client: BlockingClient, workload: Workload, duration_s: float) -> None:
    """Warm-up that checks every response, so that a client with wrong responses is not timed."""
    message = workload.request()

    def worker(turn: Workers) -> int:
        while turn.is_running:
            if client.unary(message) != message:
                raise RuntimeError(f"wrong answer to {workload.name}")
        return 0

    Workers().run(worker, workload.concurrency, duration_s)


def measure_blocking(
    client: BlockingClient, workload: Workload, duration_s: float, latency_share: float
) -> Sample:
    unary, message = client.unary, workload.request()

    def worker(turn: Workers) -> int:
        count = 0
        while turn.is_running:
            unary(message)
            count += 1
        return count

    wall_s, cpu_s = time.perf_counter(), time.process_time()
    operations = Workers().run(worker, workload.concurrency, duration_s)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    latencies = measure_latencies(client, workload, duration_s * latency_share)
    p50_us, p99_us = percentile(latencies, 0.50), percentile(latencies, 0.99)
    return Sample(operations, cpu_s, wall_s, p50_us, p99_us)


def measure_latencies(client: BlockingClient, workload: Workload, duration_s: float) -> list[float]:
    """Latencies in microseconds, ordered."""
    unary, message, now = client.unary, workload.request(), time.perf_counter_ns
    latencies_ns: list[int] = []

    def worker(turn: Workers) -> int:
        while turn.is_running:
            start = now()
            unary(message)
            latencies_ns.append(now() - start)
        return 0

    Workers().run(worker, workload.concurrency, duration_s)
    return [latency / NANOSECONDS_PER_MICROSECOND for latency in sorted(latencies_ns)]
