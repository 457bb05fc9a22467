"""Private keys: their place while they are loaded, and their lifetime; renewal under load.

grpcio holds keys in the memory of C++, and reads files in a thread of its own.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.controlplane import ControlPlane, eds_cluster
from proxyless.runtime import VirtualClock
from proxyless.transport import ClientTls, client_context
from proxyless.xds.bootstrap import CertificateProviderConfig
from proxyless.xds.resources import CertificateInstance, UpstreamTls
from proxyless.xds.security.certificates import CertificateStore
from proxyless.xds.security.cluster_security import choose_tls
from tests.certificates import CertificateAuthority
from tests.hostile.watchdog import loop_watchdog
from tests.worlds.mtls import (
    REFRESH_S,
    SERVER_NAMES,
    ProviderFiles,
    TlsBackend,
    Trust,
    joined,
    mesh,
    secured,
    tls_backends,
)
from tests.worlds.transports import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A pause of the machine may add CPU time to one callback.
pytestmark = pytest.mark.rerun("the CPU time of callbacks is measured")

MESH = CertificateInstance("mesh", "")


class WrittenFiles:
    """Records the files that this process opens for writing. Audit hooks cannot be removed."""

    def __init__(self) -> None:
        self.is_on = False
        self.paths: list[object] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event == "open":
            path, mode, flags = arguments
            if (mode and set(str(mode)) & set("wax+")) or (int(flags or 0) & 3):
                self.paths.append(path)
        if self.is_on and event in ("tempfile.mkstemp", "tempfile.mkdtemp", "os.mkdir"):
            self.paths.append(arguments[0])


@pytest.fixture(scope="module")
def written() -> WrittenFiles:
    return WrittenFiles()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file exists for a moment")
def test_no_file_is_written_when_a_key_is_loaded(
    tmp_path: Path, written: WrittenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary file would hold the key, and needs a writable directory."""
    chain, key = CertificateAuthority().issue(["client"], client=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    written.is_on = True
    try:
        client_context(ClientTls(certificate_chain=chain, private_key=key))
    finally:
        written.is_on = False
    assert written.paths == []
    assert list(tmp_path.iterdir()) == []


def test_old_key_is_not_held_after_a_rotation(tmp_path: Path) -> None:
    """The cache of contexts could hold old keys for the life of the process."""
    clock, authority = VirtualClock(), CertificateAuthority()
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(authority)
    files.write_identity(authority)
    provider = files.provider
    config = CertificateProviderConfig(provider["plugin_name"], provider["config"])
    certificates = CertificateStore(clock).acquire({"mesh": config})

    def connect() -> weakref.ref[object]:
        tls = choose_tls(UpstreamTls(ca=MESH, identity=MESH), certificates, "")
        assert isinstance(tls, ClientTls)
        return weakref.ref(client_context(tls))

    contexts = [connect()]
    for _ in range(10):
        files.write_identity(authority)
        clock.advance(REFRESH_S)
        contexts.append(connect())
        gc.collect()
        assert [each() is not None for each in contexts] == [False] * (len(contexts) - 1) + [True]


async def test_certificates_are_renewed_under_load_without_a_long_turn(tmp_path: Path) -> None:
    old, new = CertificateAuthority("old"), CertificateAuthority("new")
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(old, new)
    files.write_identity(old)
    both = old.certificate_pem + new.certificate_pem
    trust = Trust(old, both, SERVER_NAMES)
    # Connections end soon, so that many handshakes are under load.
    async with tls_backends(*(TlsBackend(name, trust, age_ms=300) for name in "abc")) as started:
        snapshot = mesh(secured(eds_cluster("orders"), {"exact": "orders.example"}), *started)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            await where()
            with loop_watchdog():
                counts = await under_load(where, lambda: renew(files, new, started, both))
    assert set(counts) <= set("abc")
    assert sum(counts.values()) > 100


async def renew(
    files: ProviderFiles,
    authority: CertificateAuthority,
    started: tuple[TlsBackend, ...],
    roots: bytes,
) -> None:
    """Write new files, and let servers have new certificates; wait until all have reconnected."""
    files.write_identity(authority)
    for backend in started:
        backend.rotate(Trust(authority, roots, SERVER_NAMES))
    await until(lambda: all(each.connections >= 2 for each in started), "new connections")


async def under_load(
    where: Callable[..., Any], change: Callable[[], Any], clients: int = 8
) -> Counter[str]:
    """Answers to RPCs, one after the other for each client, while a change takes place."""
    counts: Counter[str] = Counter()
    is_over = False

    async def run() -> None:
        while not is_over:
            counts[await where(wait_for_ready=True)] += 1

    tasks = [asyncio.ensure_future(run()) for _ in range(clients)]
    try:
        await change()
    finally:
        is_over = True
        await asyncio.gather(*tasks)
    return counts
