"""Commands about a rollout in the store: the latest stands there, and whoever gave another is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import pytest

from mark.accounting.version_costs import VersionCost
from mark.config.service import BackendSettings, ServedSettings, ServiceSettings
from mark.config.settings import Settings
from mark.controller.rollout import obey
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.versions import (
    ModelVersions,
    Rollout,
    RolloutCommand,
    RolloutPhase,
    RolloutVerb,
    VersionCounts,
)
from mark.live.backend_specs import backend_spec
from mark.live.commands import up
from mark.live.commands.rollout import abort_rollout, edited_models, give_command, promote_rollout, show_rollout
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.live.version_bundles import bundle_of
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.service import ServiceStore

MODEL = "shop"


class Command(Protocol):
    def __call__(self, settings: Settings, model: str, *, as_json: bool) -> None: ...


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_command_whose_place_another_took_says_so(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, is_carried_out: bool
) -> None:
    """The other one comes while this is waited for, after the controller has seen this or before."""

    def meanwhile(model: str) -> ModelVersions:
        mine = ROLLOUT_COMMAND.read(store, model)
        assert mine is not None
        ROLLOUT_COMMAND.write(store, RolloutCommand(id="other", verb=RolloutVerb.PROMOTE), model)
        return ModelVersions(model=model, stable="v", command=mine.id if is_carried_out else "")

    monkeypatch.setattr(store, "versions", meanwhile)
    if is_carried_out:
        assert give_command(store, MODEL, RolloutVerb.ABORT).stable == "v"
    else:
        with pytest.raises(RetryLater, match="`promote` was commanded at the same time"):
            give_command(store, MODEL, RolloutVerb.ABORT)


@pytest.mark.parametrize(
    ("phase", "command"), [(RolloutPhase.PROMOTED, abort_rollout), (RolloutPhase.ABORTED, promote_rollout)]
)
def test_a_command_about_a_rollout_that_ended_meanwhile_says_so(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, phase: RolloutPhase, command: Command
) -> None:
    """The controller that carries it out finds the rollout over, which changes nothing."""
    rollout = Rollout(id="1", before="old", candidate="new", began_at=0.0, since=0.0)

    def found(model: str) -> ModelVersions:
        mine = ROLLOUT_COMMAND.read(store, model)
        if mine is None:
            return ModelVersions(model=model, stable="old", rollout=rollout)
        ended = replace(rollout, phase=phase, reason="as it was")
        return ModelVersions(model=model, stable="new", rollout=ended, command=mine.id)

    monkeypatch.setattr(store, "versions", found)
    monkeypatch.setattr("mark.live.commands.rollout.service_store", lambda _: (store, (MODEL,)))
    with pytest.raises(Misconfigured, match=f"version new was {phase} before the command"):
        command(Settings(), MODEL, as_json=True)


def test_an_abort_after_the_promotion_says_how_to_go_back(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = Rollout(
        id="1", before="old", candidate="new", began_at=0.0, since=9.0, phase=RolloutPhase.PROMOTED, reason="done"
    )
    monkeypatch.setattr(store, "versions", lambda _: ModelVersions(model=MODEL, stable="new", rollout=rollout))
    monkeypatch.setattr("mark.live.commands.rollout.service_store", lambda _: (store, (MODEL,)))
    with pytest.raises(Misconfigured, match=r"new of shop serves since its promotion; .* `mark rollout start`$"):
        abort_rollout(Settings(), None, as_json=True)  # its only model
    monkeypatch.setattr("mark.live.commands.rollout.service_store", lambda _: (store, (MODEL, "bakery")))
    with pytest.raises(Misconfigured, match="add --model with shop or bakery"):
        abort_rollout(Settings(), None, as_json=True)
    with pytest.raises(Misconfigured, match=r"no version of shop is being rolled out"):
        promote_rollout(Settings(), MODEL, as_json=True)


def test_a_rollout_counts_requests_from_its_start_as_it_does_hours(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def counted(answered: int, late: int) -> tuple[VersionCounts, ...]:
        return (VersionCounts(version="old", answered=answered, late=late, latency_us=answered * 1000),)

    start = RolloutCommand(id="1", verb=RolloutVerb.START, candidate="new")
    versions = obey(ModelVersions(model=MODEL, stable="old"), start, 5.0, counted(100, 7))
    monkeypatch.setattr(store, "versions", lambda _: versions)
    monkeypatch.setattr(store, "traffic", lambda _: ModelTraffic(model=MODEL, versions=counted(130, 9)))
    monkeypatch.setattr("mark.live.commands.rollout.service_store", lambda _: (store, (MODEL,)))
    monkeypatch.setattr(
        "mark.live.commands.rollout.version_costs",
        lambda *_, since, until: tuple(VersionCost(version=one) for one in ("old", "new")),
    )
    monkeypatch.setattr(store, "clock", ClockAnchor)
    model = SimpleNamespace(offerings=(SimpleNamespace(boot_s=90.0),), slo=SimpleNamespace(target=0.98))
    monkeypatch.setattr(store, "spec", lambda: SimpleNamespace(served=lambda _: model))
    show_rollout(Settings(), MODEL, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["step"].keys() == {"answers", "answers_needed", "twice_as_bad_passes", "left_s"}
    old, new = document["versions"]
    assert (old["answered"], old["late"], round(old["mean_latency_s"], 6)) == (30, 2, 0.001)
    assert (new["answered"], new["late"]) == (0, 0)


def test_a_service_that_is_up_says_how_edited_files_come_in(
    store: ServiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doubler.py").write_text("class Doubler: pass\n")
    backend = BackendSettings(kind="python", target=f"{tmp_path}/doubler.py:Doubler")
    served = ServedSettings(model="doubler", backend=backend)
    settings = Settings(service=ServiceSettings(name="mine", serve=(served,)))
    serves = ModelVersions(model="doubler", stable=bundle_of(backend_spec(backend)).version)
    monkeypatch.setattr(store, "versions", lambda model: serves)
    monkeypatch.setattr("mark.live.commands.rollout.service_store", lambda _: (store, ("doubler",)))
    monkeypatch.setattr(RunFolder, "running", lambda _: Running(name="mine", pid=7, ready=True))
    with pytest.raises(Misconfigured, match=r"is up already.* names another$"):
        up.start(settings, hold=False, yes=True)

    (tmp_path / "doubler.py").write_text("class Doubler: weight = 2\n")
    wanted = "; `mark rollout start --model doubler --name mine` brings in its files as they are now"
    with pytest.raises(Misconfigured, match=f"{wanted}$"):
        up.start(settings, hold=False, yes=True)

    moving = Rollout(
        id="1", before="old", candidate=bundle_of(backend_spec(backend)).version, began_at=0.0, since=0.0
    )
    serves = replace(serves, rollout=moving)
    assert edited_models(settings) == ()
    serves = replace(serves, rollout=replace(moving, phase=RolloutPhase.ABORTED))
    assert edited_models(settings) == ("doubler",)
