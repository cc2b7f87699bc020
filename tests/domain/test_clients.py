"""The directory of clients: keys by their hash, two while one is rotated, revoked ones without any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.clients import (
    LEAST_RPS,
    MOST,
    MOST_CLIENTS,
    Client,
    ClientDirectory,
    HashedKey,
    Limits,
    Priority,
    hash_of_key,
)
from mark.domain.errors import Misconfigured
from mark.store.codec import CLIENTS

MODELS = ("digits", "net")


def client(name: str = "shop", key: bytes = b"key") -> Client:
    return Client(name=name, keys=(HashedKey(sha256=hash_of_key(key)),))


def directory(*clients: Client) -> ClientDirectory:
    found = ClientDirectory()
    for one in clients:
        found = found.created(one, models=MODELS)
    return found


def test_a_key_is_stored_as_its_sha256_alone() -> None:
    assert hash_of_key(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert "key" not in client(key=b"key-of-shop").keys[0].sha256


def test_a_rotated_client_has_two_keys_until_the_old_one_expires() -> None:
    made = directory(client()).rotated("shop", "new", at=100.0, keep_old_s=60.0)
    assert [key.sha256 for key in made.client("shop").valid_keys(159.9)] == ["new", hash_of_key(b"key")]
    assert [key.sha256 for key in made.client("shop").valid_keys(160.0)] == ["new"]


def test_no_more_than_two_keys_count_however_often_it_is_rotated() -> None:
    made = directory(client())
    for number in range(5):
        made = made.rotated("shop", str(number), at=float(number), keep_old_s=1000.0)
    assert [key.sha256 for key in made.client("shop").valid_keys(5.0)] == ["4", "3"]


def test_a_rotation_that_keeps_no_old_key_ends_it_at_once() -> None:
    made = directory(client()).rotated("shop", "new", at=100.0, keep_old_s=0.0)
    assert made.client("shop").keys == (HashedKey(sha256="new"),)


def test_a_revoked_client_has_no_key_and_keeps_its_name() -> None:
    gone = directory(client()).revoked("shop", at=7.0)
    assert gone.client("shop").is_revoked
    assert gone.client("shop").keys == ()
    with pytest.raises(Misconfigured, match="was revoked"):
        gone.rotated("shop", "new", at=8.0, keep_old_s=0.0)
    with pytest.raises(Misconfigured, match="was revoked"):
        gone.revoked("shop", at=8.0)
    again = gone.created(client(key=b"other"), models=MODELS)
    assert not again.client("shop").is_revoked


def test_a_deleted_client_is_nowhere_and_its_name_is_free() -> None:
    gone = directory(client(), client("more")).deleted("shop", at=7.0)
    assert [one.name for one in gone.present] == ["more"]
    for change in (lambda: gone.client("shop"), lambda: gone.deleted("shop", at=8.0)):
        with pytest.raises(Misconfigured, match="unknown client 'shop'"):
            change()
    with pytest.raises(Misconfigured, match="unknown client 'shop'"):
        gone.rotated("shop", "new", at=8.0, keep_old_s=0.0)
    assert not gone.deleted("more", at=8.0).present
    assert gone.created(client(key=b"other"), models=MODELS).client("shop").keys[0].sha256 == hash_of_key(b"other")


def test_a_revoked_client_can_be_deleted() -> None:
    gone = directory(client()).revoked("shop", at=7.0).deleted("shop", at=9.0)
    assert not gone.present
    assert gone.clients[0].revoked_at == 7.0


def test_no_older_copy_brings_a_deleted_key_back() -> None:
    made = directory(client())
    lost = made.rotated("shop", "1", at=2.0, keep_old_s=60.0).rotated("shop", "2", at=3.0, keep_old_s=60.0)
    gone = made.deleted("shop", at=1.0)
    for both in (gone.merged(lost), lost.merged(gone), gone.merged(made.revoked("shop", at=5.0))):
        assert not both.present
        assert not any(one.keys for one in both.clients)
    again = gone.created(client(key=b"new"), models=MODELS)
    assert [one.keys for one in again.merged(lost).clients] == [client(key=b"new").keys]


def test_a_program_of_before_deletions_lets_nobody_in_by_a_deleted_client() -> None:
    gone = CLIENTS.encode(directory(client()).deleted("shop", at=7.0))
    old = CLIENTS.decode(gone.replace(b',"is_deleted":true', b""))
    assert old.client("shop").is_revoked


def test_the_one_revoked_first_makes_room() -> None:
    full = directory(*(client(f"c{number}") for number in range(MOST_CLIENTS)))
    with pytest.raises(Misconfigured, match="at most 100 clients"):
        full.created(client("more"), models=MODELS)
    gone = full.revoked("c7", at=2.0).revoked("c3", at=1.0).created(client("more"), models=MODELS)
    names = [one.name for one in gone.clients]
    assert len(names) == MOST_CLIENTS
    assert "c3" not in names
    assert {"c7", "more"} <= set(names)


NAMES = ("a", "b", "c")
CHANGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(("create", "rotate", "revoke", "delete"))), max_size=8
)


def after(made: ClientDirectory, changes: list[tuple[str, str]], key: str = "k") -> ClientDirectory:
    """The directory after those of the changes that are possible."""
    for number, (name, change) in enumerate(changes):
        there = {one.name: one for one in made.clients}
        is_active = name in there and not there[name].is_revoked
        if change == "create" and not is_active:
            made = made.created(client(name, f"{key}{number}".encode()), models=MODELS)
        elif change == "rotate" and is_active:
            made = made.rotated(name, f"{key}{number}", at=float(number), keep_old_s=10.0)
        elif change == "revoke" and is_active:
            made = made.revoked(name, at=float(number))
        elif change == "delete" and name in there and not there[name].is_deleted:
            made = made.deleted(name, at=float(number))
    return made


@given(CHANGES, CHANGES)
def test_a_copy_that_has_all_changes_is_what_it_merges_to(
    before: list[tuple[str, str]], later: list[tuple[str, str]]
) -> None:
    old = after(ClientDirectory(), before)
    new = after(old, later)
    assert old.merged(new) == new == new.merged(old)


@given(CHANGES, CHANGES, CHANGES)
def test_copies_that_parted_lose_no_client_and_undo_no_revocation(
    before: list[tuple[str, str]], here: list[tuple[str, str]], there: list[tuple[str, str]]
) -> None:
    first = after(ClientDirectory(), before)
    one, other = after(first, here, "h"), after(first, there, "t")
    both = one.merged(other)
    assert both.clients == other.merged(one).clients
    assert {c.name for c in both.clients} == {c.name for c in (*one.clients, *other.clients)}
    for copy, parted in ((one, other), (other, one)):
        for mine in copy.clients:
            theirs = {c.name: c for c in parted.clients}.get(mine.name)
            if mine.is_revoked and (theirs is None or theirs.created_at <= mine.created_at):
                found = {c.name: c for c in both.clients}[mine.name]
                assert found.is_revoked
                assert found.is_deleted or not mine.is_deleted
    assert both.merged(one) == both.merged(other) == both, "and it is merged once"


def test_who_was_revoked_stays_so_however_often_a_copy_that_lost_it_rotates_the_key() -> None:
    made = directory(client())
    lost = made.rotated("shop", "1", at=2.0, keep_old_s=60.0).rotated("shop", "2", at=3.0, keep_old_s=60.0)
    both = made.revoked("shop", at=1.0).merged(lost)
    assert both.client("shop").is_revoked
    again = both.created(client(key=b"new"), models=MODELS)
    assert not again.merged(both).merged(lost).client("shop").is_revoked, "until it is created anew"


def test_of_copies_with_too_many_clients_the_one_revoked_first_makes_room() -> None:
    full = directory(*(client(f"c{number}") for number in range(MOST_CLIENTS))).revoked("c7", at=2.0)
    parted = full.created(client("more"), models=MODELS)
    assert full.merged(parted) == parted
    both = full.revoked("c3", at=1.0).merged(parted)
    assert len(both.clients) == MOST_CLIENTS
    assert "c3" not in {one.name for one in both.clients}


@pytest.mark.parametrize("name", ["", "Shop", "-shop", "a b", "(token)", "x" * 49])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured, match="cannot name a client"):
        directory(client(name))


def test_what_does_not_exist_is_named_with_what_does() -> None:
    with pytest.raises(Misconfigured, match="did you mean 'shop'"):
        directory(client()).revoked("shp", at=0.0)
    with pytest.raises(Misconfigured, match="unknown model 'digit'"):
        directory(replace(client(), models=("digit",)))
    with pytest.raises(Misconfigured, match="already"):
        directory(client(), client())


@given(
    st.one_of(
        st.floats(max_value=LEAST_RPS, exclude_max=True),
        st.floats(min_value=MOST, exclude_min=True),
        st.just(float("nan")),
    )
)
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(Misconfigured, match="rate"):
        Limits(rate_rps=rate)


@pytest.mark.parametrize("count", [0, 10**10])
def test_limits_below_one_request_or_beyond_all_are_refused(count: int) -> None:
    with pytest.raises(Misconfigured, match="burst"):
        Limits(burst=count)
    with pytest.raises(Misconfigured, match="concurrency"):
        Limits(concurrency=count)


def test_a_client_without_models_may_use_all() -> None:
    assert client().may_use("digits")
    assert not replace(client(), models=("net",)).may_use("digits")


@pytest.mark.parametrize(
    ("priority", "deadline_s"),
    [(Priority.ASYNC, None), (Priority.LOW, 60.0), (Priority.ASYNC, 9.0), (Priority.ASYNC, 86_401.0)],
)
def test_only_the_async_class_has_a_deadline_and_within_bounds(
    priority: Priority, deadline_s: float | None
) -> None:
    with pytest.raises(Misconfigured, match="deadline"):
        Client(name="nightly", keys=(), priority=priority, deadline_s=deadline_s)


def test_a_directory_of_before_the_async_class_still_reads() -> None:
    client = Client(name="nightly", keys=(), priority=Priority.ASYNC, deadline_s=60.0)
    directory = ClientDirectory(version=1, clients=(client,))
    assert CLIENTS.decode(CLIENTS.encode(directory)) == directory
    old = CLIENTS.encode(ClientDirectory(version=1, clients=(Client(name="shop", keys=()),)))
    shorter = old.replace(b',"deadline_s":null', b"").replace(b', "deadline_s": null', b"")
    assert shorter != old
    assert CLIENTS.decode(shorter) == CLIENTS.decode(old)
