"""Ports of the service's processes, and who can reach them."""

from __future__ import annotations

import ipaddress
import socket

from mark.domain.errors import Misconfigured


def hold_port(host: str, wanted: int, *, fall_back: bool = False) -> socket.socket:
    """Hold `wanted` if it is free, else any free port where `fall_back` says so; 0 takes a free one.

    Until the socket is closed, only this user's processes that share the port on purpose (SO_REUSEPORT) can listen
    on it. It takes no connections itself. Misconfigured where this machine lacks the host or the port is taken.
    """
    for port in (wanted, 0) if fall_back else (wanted,):
        holding = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Bound alone, but for connections that just ended; then shared: a second holder cannot bind it, a
            # server with SO_REUSEPORT can.
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holding.bind((host, port))
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        except OSError as error:
            holding.close()
            failure = error
            continue
        return holding
    raise Misconfigured(f"cannot listen on {host}:{wanted}: {failure.strerror or failure}; choose another port")


def is_loopback(host: str) -> bool:
    """True where only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
