"""Private addresses: 127.77.x.y, a block of 254 at a time that no other emulated AWS on this machine has."""

from __future__ import annotations

import errno
import socket
from collections import deque

CLAIM_PORT = 7999
"""A block is ours while we hold this port on its last address; the kernel lets go of it with our process."""
FREE_AFTER = 64
"""Addresses rest a while before they are used again: late frames to an instance that is gone find nobody."""


class AddressPool:
    """Loopback addresses that every instance can use the same ports on."""

    def __init__(self, prefix: str = "127.77") -> None:
        self._prefix = prefix
        self._claims: list[socket.socket] = []
        self._free: deque[str] = deque()
        self._block = 0

    def take(self) -> str:
        """An address that no instance has."""
        if len(self._free) <= (FREE_AFTER if self._claims else 0):
            self._claim()
        return self._free.popleft()

    def give_back(self, address: str) -> None:
        """The instance is gone."""
        self._free.append(address)

    def close(self) -> None:
        """Let go of all blocks."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()
        self._free.clear()

    def _claim(self) -> None:
        while self._block < 256:
            block, self._block = self._block, self._block + 1
            claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                claim.bind((f"{self._prefix}.{block}.255", CLAIM_PORT))
            except OSError as error:
                claim.close()
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
            self._claims.append(claim)
            self._free.extendleft(f"{self._prefix}.{block}.{host}" for host in range(254, 0, -1))
            return
        raise RuntimeError(f"no free block of addresses under {self._prefix}.0.0/16")
