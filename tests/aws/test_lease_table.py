"""The lease and the journal's tail in DynamoDB, as moto has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from mark.aws.client_tokens import agents_password, valid_passwords
from mark.aws.dns import put_addresses, remove_addresses
from mark.aws.ec2.inventory import public_addresses
from mark.aws.lease_table import PART_BYTES, TRIES
from mark.aws.names import AGENTS_PASSWORD, name_of
from mark.aws.session import Aws
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import TABLE_LEASE, LeaseLost
from mark.ports import TailLine
from tests.aws.builders import IMAGE, aws
from tests.aws.iam import NAMES
from tests.aws.lease_tables import Hand, lease_table, make_table
from tests.aws.recording import Recorder
from tests.emulator.conftest import World, config_for

TTL_S = TABLE_LEASE.ttl_s
HOST = "shop.example.org"
BALANCER = "balancer.elb.us-east-1.amazonaws.com."


@pytest.fixture
def there() -> Iterator[Aws]:
    with mock_aws():
        made = aws()
        make_table(made.tables)
        yield made
        made.close()


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Aws]:
    world = World(config_for(tmp_path))
    made = aws(endpoint_url=world.url)
    yield made
    made.close()
    world.stop()


def test_one_has_it_and_the_next_one_after_its_silence(there: Aws) -> None:
    clock = Hand()
    left, right = lease_table(there.tables, clock, "10.0.0.1"), lease_table(there.tables, clock, "10.0.1.1")
    first = left.acquire("left", TTL_S)
    assert first is not None
    assert right.acquire("right", TTL_S) is None
    clock.now = TTL_S - 0.1
    left.renew(first)
    clock.now = TTL_S + 1.0
    assert right.acquire("right", TTL_S) is None, "it was renewed meanwhile"
    assert (right.held_by(), right.leader()) == ("left", "10.0.0.1")
    clock.now = 2 * TTL_S + 1.0
    second = right.acquire("right", TTL_S)
    assert second is not None
    assert second.epoch > first.epoch
    assert (left.leader(), right.held_by()) == ("10.0.1.1", "right")
    with pytest.raises(LeaseLost, match=r"left no longer holds the lease \(epoch 1\)"):
        left.renew(first)


def test_it_is_given_back_at_once_and_by_its_holder_alone(there: Aws) -> None:
    clock = Hand()
    left, right = lease_table(there.tables, clock), lease_table(there.tables, clock)
    first = left.acquire("left", TTL_S)
    assert first is not None
    left.release(first)
    assert left.held_by() is None
    second = right.acquire("right", TTL_S)
    assert second is not None
    clock.now = 60.0
    left.release(first)
    assert left.held_by() == "right"


def test_before_the_first_leader_nobody_knows_where_the_store_is(there: Aws) -> None:
    table = lease_table(there.tables, Hand())
    assert table.held_by() is None
    with pytest.raises(RetryLater, match="no controller has led yet: mark-shop-lease holds no lease"):
        table.leader()


def test_lines_come_back_in_order_from_a_place_on(there: Aws) -> None:
    table = lease_table(there.tables, Hand())
    lease = table.acquire("left", TTL_S)
    assert lease is not None
    lines = [TailLine(1, place, f"line {place}".encode()) for place in range(12)]
    lines += [TailLine(2, 0, b"header"), TailLine(2, 1, b"")]
    for line in lines:
        table.put(lease, "m", line)
    table.put(lease, "other", TailLine(1, 11, b"of another model"))
    assert list(table.lines("m", segment=1, place=10)) == lines[10:]
    assert list(table.lines("m", segment=0, place=0)) == lines


def test_a_line_takes_the_place_of_one_whose_answer_was_lost(there: Aws) -> None:
    table = lease_table(there.tables, Hand())
    lease = table.acquire("left", TTL_S)
    assert lease is not None
    long = os.urandom(2 * PART_BYTES)
    table.put(lease, "m", TailLine(1, 1, long))
    assert list(table.lines("m", segment=1, place=1)) == [TailLine(1, 1, long)]
    table.put(lease, "m", TailLine(1, 1, b"short"))
    table.put(lease, "m", TailLine(1, 2, b"next"))
    kept = list(table.lines("m", segment=1, place=1))
    assert kept == [TailLine(1, 1, b"short"), TailLine(1, 2, b"next")]


def test_who_lost_the_lease_writes_no_line(there: Aws) -> None:
    clock = Hand()
    left, right = lease_table(there.tables, clock), lease_table(there.tables, clock)
    first = left.acquire("left", TTL_S)
    assert first is not None
    left.release(first)
    with pytest.raises(LeaseLost):
        left.put(first, "m", TailLine(1, 1, b"late"))
    second = right.acquire("right", TTL_S)
    assert second is not None
    with pytest.raises(LeaseLost):
        left.put(first, "m", TailLine(1, 1, b"later"))
    assert not list(right.lines("m", segment=0, place=0))


class Busy:
    """A client whose first transactions meet another write."""

    def __init__(self, tables: Any, times: int) -> None:
        self._tables, self.left = tables, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def transact_write_items(self, **words: Any) -> Any:
        if self.left:
            self.left -= 1
            answer: Any = {
                "Error": {"Code": "TransactionCanceledException", "Message": "cancelled"},
                "CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}],
            }
            raise ClientError(answer, "TransactWriteItems")
        return self._tables.transact_write_items(**words)


@pytest.mark.parametrize(("times", "written"), [(1, True), (TRIES, False)], ids=["once", "for long"])
def test_a_line_that_meets_a_renewal_is_written_again(
    there: Aws, monkeypatch: pytest.MonkeyPatch, *, times: int, written: bool
) -> None:
    monkeypatch.setattr("mark.aws.lease_table.PAUSE_S", 0.0)
    table = lease_table(Busy(there.tables, times), Hand())
    lease = table.acquire("left", TTL_S)
    assert lease is not None
    if written:
        table.put(lease, "m", TailLine(1, 1, b"line"))
    else:
        with pytest.raises(RetryLater, match="busy with other writes"):
            table.put(lease, "m", TailLine(1, 1, b"line"))
    assert [line.line for line in table.lines("m", segment=0, place=0)] == [b"line"] * written


def test_nodes_call_what_is_listed_for_them(called: Recorder) -> None:
    """And an instance no more than where the store is."""
    with mock_aws():
        there = aws()
        make_table(there.tables)
        zone = there.names.create_hosted_zone(Name=f"{HOST}.", CallerReference="x")["HostedZone"]["Id"]
        there.secrets.create_secret(Name=name_of(NAMES.service, AGENTS_PASSWORD), SecretString="agents")
        with called.acting("node"):
            assert valid_passwords(there, NAMES.service) == ("agents",)
            table = lease_table(there.tables, Hand(), "10.0.0.1")
            lease = table.acquire("left", TTL_S)
            assert lease is not None
            table.put(lease, "m", TailLine(1, 1, b"line"))
            assert list(table.lines("m", segment=0, place=0))
            put_addresses(there.names, zone.rpartition("/")[2], HOST, {"10.0.0.1": 1})
        with called.acting("member"):
            assert agents_password(there, NAMES.service) == "agents"
            assert lease_table(there.tables, Hand()).leader() == "10.0.0.1"
        there.close()
    for role in ("node", "member"):
        called.assert_permitted(role, replace(NAMES, zone=zone.rpartition("/")[2], host=HOST))


def test_the_name_means_the_nodes_until_it_is_removed() -> None:
    with mock_aws():
        there = aws()
        zone = there.names.create_hosted_zone(Name="example.org.", CallerReference="x")["HostedZone"]["Id"]
        put_addresses(there.names, zone, HOST, {"10.0.1.1": 10, "10.0.0.1": 10})
        put_addresses(there.names, zone, HOST, {"10.0.0.2": 10})
        [record] = [
            one
            for one in there.names.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
            if one["Type"] == "A"
        ]
        assert (record["Name"], record["ResourceRecords"]) == (f"{HOST}.", [{"Value": "10.0.0.2"}])
        assert remove_addresses(there.names, zone, HOST)
        assert not remove_addresses(there.names, zone, HOST)
        there.close()


def test_clients_get_addresses_by_their_weights(emulated: Aws) -> None:
    """Route 53 takes no weighted records beside a plain one: the emulated AWS says so, as moto does not."""
    zone = emulated.names.create_hosted_zone(Name="example.org.", CallerReference="x")["HostedZone"]["Id"]

    def there() -> dict[str, int]:
        found = emulated.names.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
        return {
            ",".join(value["Value"] for value in one["ResourceRecords"]): one.get("Weight", -1)
            for one in found
            if one["Type"] == "A"
        }

    put_addresses(emulated.names, zone, HOST, {"10.0.0.1": 10, "10.0.1.1": 10})
    assert there() == {"10.0.0.1,10.0.1.1": -1}
    put_addresses(emulated.names, zone, HOST, {"10.0.0.1": 10, "10.0.1.1": 0})
    assert there() == {"10.0.0.1": 10, "10.0.1.1": 0}
    plain: Any = {"Name": f"{HOST}.", "Type": "A", "TTL": 10, "ResourceRecords": [{"Value": "10.0.0.9"}]}
    with pytest.raises(ClientError, match="InvalidChangeBatch"):
        emulated.names.change_resource_record_sets(
            HostedZoneId=zone, ChangeBatch={"Changes": [{"Action": "UPSERT", "ResourceRecordSet": plain}]}
        )
    put_addresses(emulated.names, zone, HOST, {"10.0.1.1": 10})
    assert there() == {"10.0.1.1": -1}
    put_addresses(emulated.names, zone, HOST, {"10.0.1.1": 10, "10.0.0.2": 3})
    assert remove_addresses(emulated.names, zone, HOST)
    assert there() == {}


@pytest.mark.parametrize(
    ("kind", "means"),
    [
        ("A", {"AliasTarget": {"DNSName": BALANCER, "HostedZoneId": "Z2", "EvaluateTargetHealth": False}}),
        ("CNAME", {"TTL": 60, "ResourceRecords": [{"Value": BALANCER}]}),
    ],
    ids=["alias", "CNAME"],
)
def test_a_name_that_was_moved_to_another_service_stays(kind: str, means: dict[str, Any]) -> None:
    with mock_aws():
        there = aws()
        zone = there.names.create_hosted_zone(Name="example.org.", CallerReference="x")["HostedZone"]["Id"]
        moved: Any = {"Action": "UPSERT", "ResourceRecordSet": {"Name": f"{HOST}.", "Type": kind, **means}}
        there.names.change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": [moved]})
        before = there.names.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
        assert not remove_addresses(there.names, zone, HOST)
        assert there.names.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"] == before
        there.close()


def test_clients_from_the_internet_get_public_addresses() -> None:
    with mock_aws():
        there = aws()
        tags = [{"Key": "mark:service", "Value": "shop"}]
        run: Any = there.ec2.run_instances
        made = run(
            ImageId=IMAGE,
            InstanceType="t3.micro",
            MinCount=2,
            MaxCount=2,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )["Instances"]
        other = run(ImageId=IMAGE, InstanceType="t3.micro", MinCount=1, MaxCount=1)["Instances"][0]
        private = [made[0]["PrivateIpAddress"], other["PrivateIpAddress"], "10.255.255.1"]
        found = there.ec2.describe_instances(InstanceIds=[made[0]["InstanceId"]])["Reservations"][0]["Instances"]
        assert public_addresses(there, "shop", private) == {private[0]: found[0]["PublicIpAddress"]}
        there.close()
