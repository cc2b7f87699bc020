"""Ports of the service's processes, and who can reach them."""

from __future__ import annotations

import ipaddress
import socket

from mark.domain.errors import Misconfigured


def choose_port(host: str, wanted: int, *, fall_back: bool = False) -> int:
    """`wanted` if it is free, else any free one where `fall_back` says so; 0 takes a free one.

    Misconfigured where the host is not this machine's, or the port is taken.
    """
    for port in (wanted, 0) if fall_back else (wanted,):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError as error:
                failure = error
                continue
            return int(trial.getsockname()[1])
    raise Misconfigured(f"cannot listen on {host}:{wanted}: {failure.strerror or failure}; choose another port")


def is_loopback(host: str) -> bool:
    """True where only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
