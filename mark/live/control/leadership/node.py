"""A node of the lean shape: its store leads where its controller holds the lease, else it follows the leader's."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.member import Peer
from mark.domain.front import address_weights
from mark.store.replication import NodeStore
from mark.store.users import StoreUser

EMPTY_S = 120.0
"""Real seconds that a node without data leaves the lease to others: a replica is in sync long before. After that
nobody has more than it, and the tail of the journals is what there is."""


NAME_EACH_S = 5.0
"""Between two looks at which gateways there are."""


class NodesName:
    """The name that clients call: it means the nodes whose gateways announce themselves, by share of requests."""

    def __init__(
        self,
        gateways: Callable[[], Sequence[Peer]],
        shares: Callable[[], Mapping[str, float]],
        put: Callable[[Mapping[str, int]], None],
        record: Callable[[str | None], None],
    ) -> None:
        """`shares` are of the requests, by zone.

        `put` has the name mean these addresses by their weights; `record` takes what keeps it from that, None
        where nothing.
        """
        self._gateways, self._shares, self._put, self._record = gateways, shares, put, record
        self._meant: dict[str, int] = {}

    def poll(self) -> None:
        """Put the addresses where they or their weights have changed; where no gateway is there, none."""
        try:
            found = address_weights({peer.host: peer.zone for peer in self._gateways()}, self._shares())
            if found and found != self._meant:
                self._put(found)
                self._meant = found
        except MarkError as error:
            self._record(str(error))
        else:
            self._record(None)

    def run(self, over: threading.Event) -> None:
        """Keep it until `over`."""
        self.poll()
        while not over.wait(NAME_EACH_S):
            self.poll()


PASSWORDS_EACH_S = 5.0
"""Between two looks at what the store takes: one that has started anew knows one password alone."""


class AgentsPasswords:
    """The agents' passwords that count, as the node's own store takes them, whether it leads or not."""

    def __init__(
        self,
        store: NodeStore,
        read: Callable[[], Sequence[str]],
        record: Callable[[str | None], None],
        *,
        each_s: float,
        again_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` is called each `each_s`, after a failure each `again_s`; `record` as for the name."""
        self._store, self._read, self._record, self._monotonic = store, read, record, monotonic
        self._each_s, self._again_s = each_s, again_s
        self._valid: Sequence[str] = ()
        self._read_again_at = -math.inf
        self._why: str | None = None

    def poll(self) -> None:
        """Have the store take what counts, as far as that is known. One without users takes whoever comes."""
        try:
            if not self._store.has_user(StoreUser.AGENT):
                return
            self._refresh()
            if self._valid:
                self._store.take_passwords(StoreUser.AGENT, self._valid)
        except RetryLater as error:
            self._record(str(error))
        else:
            self._record(self._why)

    def _refresh(self) -> None:
        now = self._monotonic()
        if now < self._read_again_at:
            return
        try:
            self._valid, self._why, self._read_again_at = self._read(), None, now + self._each_s
        except MarkError as error:
            self._why, self._read_again_at = str(error), now + self._again_s

    def run(self, stop: threading.Event) -> None:
        """Keep them until `stop`."""
        self.poll()
        while not stop.wait(PASSWORDS_EACH_S):
            self.poll()


def _nothing(_address: str) -> None:
    """Stores without users let everybody do all."""


class StoreNode:
    """This node. `leader`: address of the node that leads, RetryLater before the first one.

    `grant` lets this release's processes do what they need at the store of a leader, which may be of an older one.
    """

    def __init__(
        self,
        store: NodeStore,
        *,
        address: str,
        leader: Callable[[], str],
        name: NodesName | None = None,
        passwords: AgentsPasswords | None = None,
        grant: Callable[[str], None] = _nothing,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grant, self._granted_at = grant, address
        self.store, self._address, self._leader, self._monotonic = store, address, leader, monotonic
        self._began_at = monotonic()
        self._name = name
        self.passwords = passwords

    def may_lead(self) -> bool:
        """False where its store lacks what the leader's holds; a store without data waits EMPTY_S."""
        if not self.store.lacks_data:
            return True
        try:
            if self._leader() != self._address:
                self.follow()
        except RetryLater:  # the service has never had a leader
            return True
        return self._monotonic() - self._began_at > EMPTY_S

    def lead(self) -> None:
        """Have its store take writes."""
        self.store.lead()

    def resign(self) -> None:
        """Have its store take no more writes."""
        self.store.resign()

    def follow(self) -> None:
        """Have its store be a replica of the leader's."""
        leader = self._leader()
        if leader != self._address:
            self.store.follow(leader)
            if leader != self._granted_at:
                self._grant(leader)
                self._granted_at = leader

    def beside(self, over: threading.Event) -> None:
        """Keep the name beside the ticks of the leading node."""
        if self._name is not None:
            self._name.run(over)
        over.wait()
