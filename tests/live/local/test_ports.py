"""Ports are held from the moment they are chosen."""

from __future__ import annotations

import socket

import pytest

from mark.domain.errors import Misconfigured
from mark.live.local.ports import hold_port

HOST = "127.0.0.1"


def _port(held: socket.socket) -> int:
    return int(held.getsockname()[1])


def test_a_held_port_is_nobody_elses_but_the_services_own_servers_share_it() -> None:
    with hold_port(HOST, 0) as held:
        with pytest.raises(Misconfigured, match="choose another port"):
            hold_port(HOST, _port(held))
        with hold_port(HOST, _port(held), fall_back=True) as other:
            assert _port(other) != _port(held)
        with pytest.raises(OSError, match="in use"), socket.create_server((HOST, _port(held))):
            pass
        for _ in range(2):  # a server that crashed is started again
            with (
                socket.create_server((HOST, _port(held)), reuse_port=True) as server,
                socket.create_connection((HOST, _port(held))) as client,
            ):
                accepted, _ = server.accept()
                accepted.sendall(b"it")
                accepted.close()
                assert client.recv(2) == b"it"


def test_a_port_whose_connections_just_ended_is_free() -> None:
    with hold_port(HOST, 0) as held:
        port = _port(held)
        with (
            socket.create_server((HOST, port), reuse_port=True) as server,
            socket.create_connection((HOST, port)) as client,
        ):
            server.accept()[0].close()  # the server's side ends first and waits
            assert client.recv(1) == b""
    with hold_port(HOST, port) as again:
        assert _port(again) == port
