"""Unit tests of proxyless.controlplane.bind_errors."""

import socket
from pathlib import Path

import pytest

from proxyless.controlplane.bind_errors import find_bind_error


def test_address_in_use_is_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reason = find_bind_error(f"127.0.0.1:{server.getsockname()[1]}")
    assert reason is not None
    assert reason.startswith("address in use: ")


def test_address_of_another_machine_is_the_reason() -> None:
    assert find_bind_error("192.0.2.1:0") == "this machine has no such address"


def test_one_address_of_a_name_that_can_be_bound_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))
            for host in ("127.0.0.1", "127.0.0.2")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: places)
        assert find_bind_error(f"name:{port}") is None
        del places[1]
        assert find_bind_error(f"name:{port}") is not None


def test_free_address_has_no_reason() -> None:
    assert find_bind_error("127.0.0.1:0") is None
    assert find_bind_error("[::1]:0") in (None, "this machine has no such address")


def test_unix_socket_in_a_missing_directory_is_the_reason(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert find_bind_error(f"unix:{gone}/s") == f"there is no directory {str(gone)!r}"
    assert find_bind_error(f"unix://{gone}/s") == f"there is no directory {str(gone)!r}"
    assert find_bind_error(f"unix:{tmp_path}/s") is None
    assert find_bind_error("unix:s") is None
    assert find_bind_error("unix-abstract:a/b") is None
    assert not list(tmp_path.iterdir())


def test_port_without_a_number_is_left_to_grpcio() -> None:
    assert find_bind_error("localhost") is None
    assert find_bind_error("localhost:http") is None


def test_address_that_cannot_be_looked_up_has_a_reason() -> None:
    # Its words depend on the version of Python.
    assert find_bind_error(f"127.0.0.1:{2**80}")
    assert "too long" in (find_bind_error(f"{'a' * 64}:80") or "")


def test_unix_socket_in_use_is_the_reason(tmp_path: Path) -> None:
    """grpcio would replace it, and the process that listens there would get no clients."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        reason = find_bind_error(f"unix:{path}")
    assert reason == "address in use: another process listens there, choose another path"
    assert find_bind_error(f"unix:{path}") is None, "left by a process that has ended"


def test_file_in_the_place_of_a_unix_socket_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    assert find_bind_error(f"unix:{tmp_path}/s") == "there is a file, which is no socket"
    assert find_bind_error(f"unix:{tmp_path}/{'s' * 200}") == "AF_UNIX path too long"
