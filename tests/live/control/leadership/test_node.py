"""Two nodes with a store each, and the lease in a table: the loss of one loses nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.lease_table import LeaseTable
from mark.aws.session import Aws
from mark.domain.clients import Client, HashedKey
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import TABLE_LEASE, Lease, LeaseLost
from mark.domain.fleet.member import Peer
from mark.live.control.leadership.node import EMPTY_S, NodesName, StoreNode
from mark.store.connect import Link, connect
from mark.store.embedded import EmbeddedRedis
from mark.store.replication import NodeStore
from mark.store.service import ServiceStore
from tests.aws.builders import aws
from tests.aws.lease_tables import Hand, lease_table, make_table
from tests.waiting import until

TTL_S = TABLE_LEASE.ttl_s
URL = "redis://lease:6379"


class Machine:
    """A node: its Redis on a port of loopback, its controller's parts, and links that find the leader."""

    def __init__(self, folder: Path, tables: Any, clock: Hand) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        options = {"port": str(port), "bind": "127.0.0.1", "repl-diskless-sync-delay": "0"}
        self.redis = EmbeddedRedis(folder, options=options)
        self.table: LeaseTable = lease_table(tables, clock, self.address)
        self.own: Link = connect(f"redis://{self.address}")
        #: nodes at whose stores this one granted its release's rights
        self.granted: list[str] = []
        self.node = StoreNode(
            NodeStore(self.own, port),
            address=self.address,
            leader=self.table.leader,
            grant=self.granted.append,
            monotonic=clock,
        )
        self.link = connect(URL, self.table.leader)
        self.store = ServiceStore(self.link, "shop", leases=self.table, tail=self.table)

    def leads(self) -> Lease | None:
        lease = self.table.acquire(self.address, TTL_S) if self.node.may_lead() else None
        if lease is not None:
            self.node.lead()
            self.store.take_over(lease, ["m"])
        else:
            self.node.follow()
        return lease

    def close(self) -> None:
        self.link.close()
        self.own.close()
        self.redis.stop()


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def there() -> Iterator[Aws]:
    with mock_aws():
        made = aws()
        make_table(made.tables)
        yield made
        made.close()


@pytest.fixture
def nodes(tmp_path: Path, there: Aws, clock: Hand) -> Iterator[tuple[Machine, Machine]]:
    left, right = (Machine(tmp_path / name, there.tables, clock) for name in ("left", "right"))
    yield left, right
    left.close()
    right.close()


def test_the_loss_of_the_leading_node_loses_no_line(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    left, right = nodes
    first = left.leads()
    assert first is not None
    assert right.leads() is None
    journal = left.store.open_journal("m", b"header", first)
    journal.write(b"one")
    until(lambda: right.own.call("DBSIZE") == left.own.call("DBSIZE"))
    until(lambda: right.own.call("XLEN", "{mark:shop}:journal:m:1") == 2)
    right.own.call("REPLICAOF", "NO", "ONE")  # what follows does not reach the replica any more
    journal.write(b"two")
    journal.rotate(b"second header")
    journal.write(b"three")
    left.redis.kill()

    with pytest.raises(RetryLater):
        right.store.ping()
    clock.now += TTL_S / 2
    assert right.leads() is None
    assert (left.granted, right.granted) == ([], [left.address])
    clock.now += TTL_S
    second = right.leads()
    assert second is not None
    assert list(right.store.journal_lines("m", 1)) == [b"header", b"one", b"two"]
    assert list(right.store.journal_lines("m")) == [b"second header", b"three"]
    again = right.store.open_journal("m", b"unused", second)
    again.write(b"four")
    assert list(right.store.journal_lines("m")) == [b"second header", b"three", b"four"]


def test_a_line_that_took_anothers_place_is_the_one_that_is_restored(
    nodes: tuple[Machine, Machine], clock: Hand
) -> None:
    left, right = nodes
    first = left.leads()
    assert first is not None
    right.leads()
    left.store.open_journal("m", b"header", first).write(b"unacknowledged")
    until(lambda: right.own.call("XLEN", "{mark:shop}:journal:m:1") == 2)
    right.own.call("REPLICAOF", "NO", "ONE")
    repeated = left.store.open_journal("m", b"", first)
    repeated._lines = 1  # its answer was lost: the writer does not know that it stands there
    repeated.write(b"in its place")
    left.redis.kill()
    right.table.acquire("right", TTL_S)
    clock.now += TTL_S
    assert right.leads() is not None
    assert list(right.store.journal_lines("m")) == [b"header", b"in its place"]


def test_a_node_that_was_cut_off_writes_no_line(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    """Its own store would take the line; the table does not."""
    left, right = nodes
    first = left.leads()
    assert first is not None
    right.leads()
    journal = left.store.open_journal("m", b"header", first)
    until(lambda: right.own.call("EXISTS", "{mark:shop}:journal:m:1") == 1)
    assert right.leads() is None
    clock.now += TTL_S
    assert right.leads() is not None
    with pytest.raises(LeaseLost):
        journal.write(b"late")
    left.node.follow()
    until(lambda: left.own.call("ROLE")[3] == b"connected")
    assert list(right.store.journal_lines("m")) == [b"header"]


def test_a_store_that_lost_everything_begins_with_the_tail(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    """The one node of a service: its successor has an empty disk."""
    left, right = nodes
    first = left.leads()
    assert first is not None
    journal = left.store.open_journal("m", b"header", first)
    journal.write(b"one")
    left.redis.kill()
    assert not right.node.may_lead(), "another node might have more"
    assert right.table.acquire("right", TTL_S) is None
    clock.now += EMPTY_S + 1.0
    second = right.leads()
    assert second is not None
    assert list(right.store.journal_lines("m")) == [b"header", b"one"]


def test_a_store_that_lost_everything_gets_its_clients_back(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    left, right = nodes
    first = left.leads()
    assert first is not None
    shop = Client(name="shop", keys=(HashedKey(sha256="ff"),))
    left.store.clients.change(lambda known: known.created(shop, models=["m"]))
    left.store.clients.copy(first)
    revoked = left.store.clients.change(lambda known: known.revoked("shop", at=5.0))
    left.store.clients.copy(first)
    left.own.call("DEL", "{mark:shop}:clients")
    left.store.clients.copy(first)
    assert left.store.clients.read() == revoked, "the leader puts back what its store has lost"
    left.redis.kill()
    clock.now += EMPTY_S + 1.0
    assert not right.node.may_lead() or right.table.acquire("right", TTL_S) is None
    clock.now += EMPTY_S + 1.0
    assert right.leads() is not None
    assert right.store.clients.read() == revoked, "a key that was revoked stays so"
    with pytest.raises(LeaseLost):
        right.store.clients.copy(first)


def test_clients_find_the_node_that_leads(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    left, right = nodes
    assert left.leads() is not None
    right.leads()
    until(lambda: right.own.call("ROLE")[3] == b"connected")
    agent = connect(URL, left.table.leader)
    agent.call("SET", "a", "1")
    left.redis.kill()
    with pytest.raises(RetryLater):
        agent.call("GET", "a")
    clock.now += 1.0
    right.table.acquire("right", TTL_S)
    clock.now += TTL_S
    assert right.leads() is not None
    until(lambda: right.own.call("ROLE")[0] == b"master")
    assert agent.call("GET", "a") == b"1"
    agent.close()


def test_a_node_that_takes_over_writes_to_its_own_store_though_the_other_still_answers(
    nodes: tuple[Machine, Machine], clock: Hand
) -> None:
    left, right = nodes
    first = left.leads()
    assert first is not None
    right.leads()
    left.store.open_journal("m", b"header", first)
    until(lambda: right.own.call("EXISTS", "{mark:shop}:journal:m:1") == 1)
    assert right.leads() is None
    right.store.ping()  # its link goes to the node that leads
    clock.now += TTL_S
    second = right.leads()
    assert second is not None
    right.store.open_journal("m", b"unused", second).write(b"one")
    assert right.own.call("XLEN", "{mark:shop}:journal:m:1") == 2
    assert left.own.call("XLEN", "{mark:shop}:journal:m:1") == 1


def test_clients_leave_a_node_that_resigned_at_once(nodes: tuple[Machine, Machine], clock: Hand) -> None:
    """It still answers, and cannot know who leads: nobody may go on writing there."""
    left, right = nodes
    assert left.leads() is not None
    right.leads()
    until(lambda: right.own.call("ROLE")[3] == b"connected")
    agent = connect(URL, left.table.leader)
    agent.call("SET", "a", "1")
    assert right.leads() is None
    clock.now += TTL_S
    left.node.resign()
    assert right.leads() is not None
    with pytest.raises(RetryLater):
        agent.call("SET", "a", "2")
    agent.call("SET", "a", "2")
    assert right.own.call("GET", "a") == b"2"
    agent.close()


def test_the_name_means_the_nodes_whose_gateways_are_there() -> None:
    there = [Peer(name="a", host="10.0.0.1", port=1, zone="a"), Peer(name="b", host="10.0.1.1", port=1, zone="b")]
    shares = {"a": 0.5, "b": 0.5}
    put: list[Mapping[str, int]] = []
    told: list[str | None] = []
    name = NodesName(lambda: tuple(there), lambda: shares, put.append, told.append)
    name.poll()
    name.poll()
    shares = {"a": 0.8, "b": 0.2}
    name.poll()
    there.pop(0)
    name.poll()
    there.clear()
    name.poll()
    both = {"10.0.0.1": 10, "10.0.1.1": 10}
    steered = both | {"10.0.1.1": 2}
    assert put == [both, steered, {"10.0.1.1": 10}], "without a gateway it stays as it is"
    assert told == [None] * 5


def test_a_name_that_cannot_be_kept_is_told_and_tried_again() -> None:
    told: list[str | None] = []
    answers = iter([RetryLater("throttled"), None])

    def put(_: object) -> None:
        error = next(answers)
        if error is not None:
            raise error

    name = NodesName(lambda: (Peer(name="a", host="10.0.0.1", port=1),), dict, put, told.append)
    name.poll()
    name.poll()
    assert told == ["throttled", None]
