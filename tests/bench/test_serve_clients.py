"""The benchmark of `proxyless serve`, with few clients: counts, and no figures of the machine."""

from bench.serve_clients import run


async def test_every_client_gets_each_resource_once_and_the_change_once() -> None:
    start, change = await run(20, 50)
    assert start["responses"] == 4 * 20
    assert change["responses"] == 20
    assert isinstance(change["cpu_s"], float)
