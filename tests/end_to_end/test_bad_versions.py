"""Versions that are worse are aborted by themselves under load, and cost nobody an answer.

The stable version answers 1, the new one 2: an answer tells whose it is. Requests are sent under ids of their own,
so that the share that a canary gets is that of the hash.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mark.domain.models.versions import ModelVersions
from tests.end_to_end.rig import Rig, eventually, rig
from tests.end_to_end.steady_load import Load, load
from tests.end_to_end.test_versions import CONFIG, SPEED, carries, edit, start, status, write_model

OLD, NEW = 1.0, 2.0
SLOWER = "(__import__('time').sleep(0.15), 2)[1]"
"""An answer that comes in time, four times as late as the stable version's."""
ERRS = "2 / (__import__('random').random() > 0.1)"
"""Every tenth answer is an error: too few to burn the error budget at once."""
ENDS_ITS_AGENT = """
    def __init__(self):
        import os, sys
        if "agent" in " ".join(sys.argv):
            os._exit(3)

    def predict"""
MOST_S = 240.0
SHARED = 10_000
"""Requests by which a share of 5 % is judged: of random ids one count in 200,000 is a point off."""


@contextmanager
def service(tmp_path: Path, name: str, more: str = "") -> Iterator[Rig]:
    """A service of the stable version, whose clock runs fast. more: lines of the model's settings."""
    write_model(tmp_path / "home")
    with rig(tmp_path / "home", name) as live:
        live.up(CONFIG.format(home=live.home, name=live.name) + more)
        live.run_at(SPEED)
        yield live
        live.down()


def infer(live: Rig) -> str:
    return f"{live.running['gateway']}/v2/models/shop/infer"


def versions(live: Rig) -> ModelVersions:
    found = live.store.versions("shop")
    assert found is not None
    return found


def is_over(live: Rig) -> bool:
    rollout = versions(live).rollout
    return rollout is not None and rollout.is_over


def aborted(live: Rig, sending: Load) -> dict[str, Any]:
    """The rollout once it was aborted, and nothing is answered by it any more."""
    eventually(lambda: is_over(live), within_s=MOST_S)
    found = status(live)
    assert found["phase"] == "aborted", found
    at = time.monotonic()
    eventually(lambda: sum(sending.since(at).values()) >= 500)
    assert set(sending.since(at)) == {OLD}, "an aborted version answers nobody"
    return found


@pytest.mark.slow
def test_a_version_that_never_becomes_ready_is_aborted(tmp_path: Path) -> None:
    with (
        service(tmp_path, "never-ready") as live,
        load(infer(live)) as sending,
    ):
        carries(sending)
        at = time.monotonic()
        break_loading(live.home)
        start(live, "--canary", "5,100", "--ready-within", "240")
        found = aborted(live, sending)
        assert "not ready within 240 s: 0 of 1 c5.large" in found["reason"]
        sending.assert_good("never ready", at)
        assert set(sending.since(0.0)) == {OLD}


def break_loading(home: Path) -> None:
    """Give the model code that ends its process where an instance loads it; elsewhere it is as good as any."""
    edit(home, 2)
    path = home / "shop" / "shop.py"
    path.write_text(path.read_text().replace("    def predict", ENDS_ITS_AGENT))


@pytest.mark.slow
def test_a_slower_version_is_aborted_by_its_latency_and_an_erring_one_by_its_errors(tmp_path: Path) -> None:
    with service(tmp_path, "worse") as live, load(infer(live)) as sending:
        carries(sending)
        at = time.monotonic()
        edit(live.home, SLOWER)
        start(live, "--canary", "25,100", "--dwell", "100000")
        seconds = until_aborted(live, 0.25)
        found = aborted(live, sending)
        assert found["reason"].startswith("latency: ")
        assert NEW in sending.since(0.0), "it answered some"
        sending.assert_good("aborted by latency", at, aborted_s=seconds)

        at = time.monotonic()
        edit(live.home, ERRS)
        candidate = start(live, "--canary", "25,100", "--dwell", "100000")["candidate"]
        seconds = until_aborted(live, 0.25)
        found = aborted(live, sending)
        assert found["reason"].startswith("error share: "), found
        [row] = [one for one in found["versions"] if one["version"] == candidate]
        assert row["failed"] >= 10
        sending.assert_good("aborted by errors", at, failed_by_it=row["failed"], aborted_s=seconds)


def until_aborted(live: Rig, share: float) -> float:
    """Seconds for which the candidate has its share, until it is aborted."""
    eventually(lambda: versions(live).weight == share, within_s=MOST_S)
    shared_at = time.monotonic()
    eventually(lambda: is_over(live), within_s=MOST_S)
    return time.monotonic() - shared_at


@pytest.mark.slow
def test_a_canary_of_five_percent_gets_five_percent_and_a_shadow_answers_nobody(tmp_path: Path) -> None:
    with service(tmp_path, "shares") as live, load(infer(live)) as sending:
        carries(sending)
        began_at = time.monotonic()
        edit(live.home, 2)
        start(live, "--shadow", "50", "--shadow-dwell", "600", "--canary", "5,100", "--dwell", "100000")
        eventually(lambda: versions(live).shadow == 0.5, within_s=MOST_S)
        assert versions(live).weight == 0.0
        eventually(lambda: versions(live).weight == 0.05, within_s=MOST_S)
        at = time.monotonic()
        found = status(live)
        assert found["verdict"].startswith("answers differ: ")
        [row] = [one for one in found["versions"] if one["role"] == "candidate"]
        assert row["compared"] == row["differing"] >= 100
        assert {one.value for one in tuple(sending.answers) if one.sent < at - 5.0} == {OLD}
        eventually(lambda: sum(sending.since(at).values()) >= SHARED, within_s=2 * MOST_S)
        got = sending.since(at)
        share = got[NEW] / got.total()
        assert abs(share - 0.05) <= 0.01
        asked = time.monotonic()
        live.ask("rollout", "abort", "--model", "shop")
        ended = time.monotonic()
        eventually(lambda: sum(sending.since(ended).values()) >= 500)
        assert set(sending.since(ended)) == {OLD}
        last = max(one.sent for one in tuple(sending.answers) if one.value == NEW)
        seconds = {"command_s": ended - asked, "last_answer_s": max(0.0, last - asked)}
        sending.assert_good("canary of 5 %, aborted by command", began_at, percent=100 * share, **seconds)

        at = time.monotonic()
        edit(live.home, 3)
        start(live, "--shadow", "50", "--most-differing", "1", "--canary", "none")
        found = aborted(live, sending)
        assert found["reason"].startswith("answers differ: ")
        assert 3.0 not in sending.since(0.0)
        sending.assert_good("shadow alone, aborted by its differences", at)
        notes = [note.text for tick in live.ticks("shop") for note in tick.notes if note.kind == "rollout"]
        assert any("answers differ: " in text for text in notes)


@pytest.mark.slow
def test_a_model_with_a_central_queue_is_rolled_out_and_back_under_load(tmp_path: Path) -> None:
    with (
        service(tmp_path, "central", "      dispatch: kairos\n") as live,
        load(infer(live)) as sending,
    ):
        carries(sending)
        began_at = time.monotonic()
        edit(live.home, 2)
        first = start(live, "--canary", "25,100", "--dwell", "60")
        eventually(lambda: versions(live).weight == 0.25, within_s=MOST_S)
        eventually(lambda: versions(live).stable == first["candidate"], within_s=MOST_S)
        eventually(lambda: set(sending.since(time.monotonic() - 0.5)) == {NEW})

        edit(live.home, 3)
        start(live, "--canary", "50,100", "--dwell", "100000")
        eventually(lambda: versions(live).weight == 0.5, within_s=MOST_S)
        eventually(lambda: 3.0 in sending.since(time.monotonic() - 5.0))
        assert not is_over(live), status(live)
        assert live.ask("rollout", "abort", "--model", "shop")["phase"] == "aborted"
        at = time.monotonic()
        eventually(lambda: sum(sending.since(at).values()) >= 500)
        assert set(sending.since(at)) == {NEW}
        sending.assert_good("central queue: promoted, then aborted by command", began_at)
