"""A service is upgraded while it runs: each process reads what those of the last release have written."""

from __future__ import annotations

import json

import pytest

from mark.controller.hosts.placement_journal import read_placements
from mark.controller.journal import read_journal
from mark.protocols import frames
from mark.store import codec
from mark.store.users import ACCESSES, UNSENT, StoreUser
from tests.store.released import recorded

LAST = recorded()
LATER = "a-field-of-a-later-release"


@pytest.mark.parametrize("kind", LAST["texts"])
def test_what_the_last_release_wrote_is_read_and_so_is_what_a_later_one_adds(kind: str) -> None:
    text, made = LAST["texts"][kind], getattr(codec, kind)
    found = made.decode(text.encode())
    assert made.decode(made.encode(found)) == found
    if kind != "LISTED":  # whose keys are instances
        assert made.decode(json.dumps({**json.loads(text), LATER: 1}).encode()) == found


@pytest.mark.parametrize(("kind", "read"), [("model", read_journal), ("placements", read_placements)])
def test_its_journals_go_on(kind: str, read: object) -> None:
    assert callable(read)
    lines = [line.encode() for line in LAST["journals"][kind]]
    later = [json.dumps({**json.loads(line), LATER: 1}).encode() for line in lines]
    (header, rest), (later_header, later_rest) = read(lines), read(later)
    found = [*rest]
    assert (header, found) == (later_header, [*later_rest])
    assert len(found) == len(lines) - 1


def test_its_agents_are_understood_and_find_their_scripts() -> None:
    assert LAST["frames"] == frames.VERSION, "gateways have to speak the last release's version, too"
    assert {script.sha for script in UNSENT} >= set(LAST["scripts"]), "keep the last release's texts beside ours"


@pytest.mark.parametrize("user", LAST["rights"])
def test_no_right_is_taken_from_it(user: str) -> None:
    now = ACCESSES[StoreUser(user)]
    for kind, had in LAST["rights"][user].items():
        assert set(had.split()) - set(getattr(now, kind)) == set()
