"""A trial is the same deploy with other settings, each of which is said."""

from __future__ import annotations

import zipfile
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.budget import Reached
from mark.catalog.machines import FREE_PLAN_TYPES
from mark.config.footprint import footprint_of, front_machines
from mark.config.served import served_models
from mark.config.settings import Settings
from mark.deployment.bundles import fits_function
from mark.deployment.deployment_plan import compare
from mark.deployment.spending import end_lines, refuse_past, spending_of
from mark.deployment.synth import check_settings
from mark.deployment.trial import trial_settings, tried
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.emulator.ec2.account_limits import NEW, NEW_CONCURRENCY, NEW_MEMORY_MB
from mark.live.local.first_price import first_price
from mark.live.models import make_live_models

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1"
DIGITS = {
    "model": "digits",
    "backend": {"kind": "python", "target": "mark.models.digits:Digits"},
    "market": "spot",
}
EMULATED = {"model": "inception-v3", "expected_rps": 400}
ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:api-AbCdEf"
ROLLOUTS: tuple[dict[str, Any], ...] = (
    {},
    {
        "shape": "ha",
        "certificate": "arn:aws:acm:us-east-1:123456789012:certificate/0",
        "network": {"egress": "private"},
    },
    {
        "node": {"name": "api.example.com", "certificate": ARN, "zone": "Z0"},
        "gateway": {"scheme": "internet-facing"},
    },
    {"machines": [{"accelerator": "nvidia"}, {}], "functions": {"memory_mib": 10_000}},
    {"report": {"sender": "a@b.c", "to": ["d@e.f"], "reconcile": True}, "alarms": {"to": ["g@h.i"]}},
    {"functions": {"provisioned": 5, "reserved": 20}, "gateway": {"clients": ["192.0.2.0/24"]}},
)


def settings(*serve: dict[str, Any], rollout: dict[str, Any] | None = None, **more: Any) -> Settings:
    aws = {"aws": more.pop("aws")} if "aws" in more else {}
    service = {"name": "shop", "serve": list(serve), **aws}
    return Settings.model_validate({"service": service, "rollout": {"image": IMAGE} | (rollout or {}), **more})


WHOLE = st.builds(
    settings,
    st.just(EMULATED),
    st.just(DIGITS),
    rollout=st.sampled_from(ROLLOUTS),
    budget=st.sampled_from(({}, {"daily_usd": 2}, {"daily_usd": 50, "monthly_usd": 900}, {"monthly_usd": 3})),
    aws=st.sampled_from(({}, {"max_usd_per_hour": 0.5}, {"max_usd_per_hour": 12})),
    market=st.sampled_from(("spot", "on-demand")),
)


@given(whole=WHOLE, fits=st.booleans())
def test_a_trial_fits_a_new_account_and_its_limits_whatever_the_settings_are(whole: Settings, fits: bool) -> None:
    trial, _ = trial_settings(whole, fits=lambda _: fits)
    check_settings(trial)
    assert Settings.model_validate(trial.model_dump()) == trial, "as if somebody had written them"
    [model] = make_live_models(trial)
    assert model.name == "digits"
    assert {item.market for item in model.served.offerings} == {Market.ON_DEMAND}
    assert {item.instance_type.name for item in model.served.offerings} == {"t3.small"}, "the Free plan's"
    assert footprint_of(trial).gateways.instance_type in FREE_PLAN_TYPES
    assert (model.served.overflow is not None) == fits
    rollout, footprint = trial.rollout, footprint_of(trial)
    assert (rollout.shape, footprint.gateways.count, rollout.gateway.scheme) == ("lean", 1, "internal")
    assert (rollout.report.sender, rollout.alarms.to, rollout.functions.reserved) == (None, (), None)
    assert rollout.function_mib <= NEW_MEMORY_MB
    assert trial.policy.overflow_limits.concurrency <= NEW_CONCURRENCY
    smallest = min(item.instance_type.vcpus for item in model.served.offerings)
    during_an_update = front_machines(trial).vcpus
    assert during_an_update + smallest <= NEW["L-1216C47A"], "a node, and an instance at least"
    spending = spending_of(trial, [model], footprint)
    assert spending.limit_usd <= 1.0
    assert first_price(trial, [model]).usd_per_hour < 1.0
    assert trial.budget.daily_usd is not None
    assert trial.budget.daily_usd <= 5.0
    assert trial.budget.when_reached is Reached.PAUSE


@given(whole=WHOLE, fits=st.booleans())
def test_all_that_differs_is_said_once_and_a_trial_of_a_trial_is_the_same(whole: Settings, fits: bool) -> None:
    trial, differences = trial_settings(whole, fits=lambda _: fits)
    said = [one.setting for one in differences]
    assert len(said) == len(set(said))
    assert all(one.why for one in differences)
    assert trial_settings(trial, fits=lambda _: fits) == (trial, ())
    if rollout_differs := [key for key, ours in trial.rollout if ours != getattr(whole.rollout, key)]:
        assert {one.split(".")[1] for one in said if one.startswith("rollout.")} == set(rollout_differs)


def test_limits_that_are_lower_than_a_trial_s_stay() -> None:
    with_end = settings(DIGITS, rollout={"ends_on": "2027-01-01"})
    assert trial_settings(with_end, fits=lambda _: False)[0].rollout.ends_on == date(2027, 1, 1)
    lower = settings(DIGITS, aws={"max_usd_per_hour": 0.3}, budget={"monthly_usd": 2})
    trial, _ = trial_settings(lower, fits=lambda _: False)
    assert (trial.service.aws.max_usd_per_hour, trial.budget.daily_usd) == (0.3, 2)


def test_your_own_name_and_certificate_stay_so_that_the_whole_service_can_follow_in_place() -> None:
    node = {"name": "api.example.com", "certificate": ARN}
    trial, _ = trial_settings(settings(DIGITS, rollout={"node": node}), fits=lambda _: False)
    assert (trial.rollout.node.name, trial.rollout.node.certificate) == ("api.example.com", ARN)
    assert not trial.rollout.node.self_signed
    trial, _ = trial_settings(settings(DIGITS), fits=lambda _: False)
    assert (trial.rollout.node.name, trial.rollout.node.self_signed) == ("shop.mark.internal", True)


def test_a_trial_ends_by_itself_and_says_when_and_what_a_day_costs() -> None:
    trial, differences = trial_settings(settings(DIGITS), fits=lambda _: False, today=date(2026, 11, 29))
    assert [one.value for one in differences if one.setting == "rollout.ends_on"] == [date(2026, 12, 6)]
    ends_at = datetime(2026, 12, 6, tzinfo=UTC).timestamp()
    assert trial.rollout.ends_at == ends_at
    [line] = end_lines(trial, 0.125)
    assert line.startswith("A day costs about 3.00 USD.")
    assert "on 2026-12-06 at 0:00 UTC" in line
    assert end_lines(settings(DIGITS), 0.125) == ()
    refuse_past(trial, ends_at - 1.0)
    with pytest.raises(Misconfigured, match="2026-12-06 is not ahead"):
        refuse_past(trial, ends_at)


def test_there_is_no_trial_of_a_model_that_answers_zeros() -> None:
    with pytest.raises(Misconfigured, match=r"every backend of service\.serve is emulated"):
        trial_settings(settings(EMULATED), fits=lambda _: False)


def test_what_differs_is_printed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    trial = tried(settings(EMULATED, DIGITS))
    assert [one.model for one in served_models(trial)] == ["digits"]
    out, err = capsys.readouterr()
    assert out == "", "a document of --json stays one"
    assert "service.serve: digits (one model of 2 will do)" in err
    assert "rollout.nodes: 1 (its loss stops the service, which a trial can take)" in err


def test_a_function_answers_for_a_model_that_its_zip_holds_or_that_has_an_image(tmp_path: Path) -> None:
    asked = settings(DIGITS, rollout={"functions": {"bundles": str(tmp_path)}})
    backend = served_models(asked)[0].backend
    assert not fits_function(asked, backend), "there is no zip"
    for name, fits in (("mark/models/other.py", False), ("mark/models/digits.py", True)):
        with zipfile.ZipFile(tmp_path / "infer.zip", "w") as archive:
            archive.writestr(name, "")
        assert fits_function(asked, backend) is fits
    image = settings(DIGITS, rollout={"functions": {"infer_image": IMAGE, "bundles": "nowhere"}})
    assert fits_function(image, backend)
    server = backend.model_copy(update={"kind": "oip", "target": "http://127.0.0.1:8000"})
    assert not fits_function(image, server), "a server of its own is no function"


def zone(name: str) -> dict[str, Any]:
    return {"Resources": {"Zone": {"Type": "AWS::Route53::HostedZone", "Properties": {"Name": name}}}}


@pytest.mark.parametrize(
    ("becomes", "says"),
    [(zone("api.example.com."), "and would get api.example.com"), ({"Resources": {}}, "and would get none")],
    ids=["another name", "a zone of yours"],
)
def test_the_name_that_a_trial_chose_cannot_change_in_place(becomes: dict[str, Any], says: str) -> None:
    name = "mark-shop-state"
    state = SimpleNamespace(name=name, status="CREATE_COMPLETE", tags={})
    stacks: Any = SimpleNamespace(named=lambda _: (state,), template=lambda _: zone("shop.mark.internal."))
    after: Any = SimpleNamespace(templates={name: becomes})
    with pytest.raises(
        Misconfigured, match=rf"a hosted zone of its own for shop\.mark\.internal, {says}.*destroy"
    ):
        compare(stacks, after, "shop")
    after.templates = {name: zone("shop.mark.internal.")}
    assert [plan.act for plan in compare(stacks, after, "shop")] == ["keep"]
