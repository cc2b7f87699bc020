"""Which models a live service may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.aws.names import HANDLERS
from mark.config.settings import Settings, load_settings
from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.serving import VariantDispatch
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.errors import Misconfigured
from mark.live.local.first_plan import first_plan
from mark.live.models import LEFT_OUT, make_live_models, service_spec
from mark.service_spec import ServedModel
from mark.store.codec import SPEC


@pytest.mark.parametrize("name", HANDLERS)
def test_a_model_bears_no_name_of_the_services_own_functions(name: str) -> None:
    settings = Settings.model_validate({"service": {"serve": [{"model": name}]}})
    with pytest.raises(Misconfigured, match=f"a model cannot be named {name}"):
        make_live_models(settings)


def test_a_model_bears_no_name_of_another_s_second_function() -> None:
    settings = Settings.model_validate({"service": {"serve": [{"model": "rm2"}, {"model": "rm2_2"}]}})
    with pytest.raises(Misconfigured, match="a model cannot be named rm2_2 beside rm2"):
        make_live_models(settings)


def test_what_packs_pods_is_for_replays() -> None:
    settings = Settings.model_validate(
        {"policies": ["kubernetes-packed"], "service": {"serve": [{"model": "inception-v3"}]}}
    )
    with pytest.raises(Misconfigured, match="kubernetes-packed is for replays"):
        make_live_models(settings)


def rates(**trace: str) -> dict[str, float]:
    serve = [{"model": "rm2", "offerings": {"types": ["r5n.large", "c5n.2xlarge"]}}]
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": serve}, "trace": trace}))
    assert model.served.model.sizes is None  # who serves needs no distribution
    assert model.alone  # as in replays
    return {offering.name: offering.capacity_rps for offering in model.served.offerings}


def test_plans_of_a_live_service_count_requests_of_the_sizes_that_settings_name() -> None:
    one, fifty, hundred = (rates(sizes=f"constant:{size}") for size in (1, 50, 100))
    assert set(one) == set(fifty) == set(hundred)
    assert all(hundred[name] < fifty[name] < 0.1 * one[name] for name in one)


def central(**serve: object) -> CentralPolicy | None:
    one = {"model": "inception-v3", "offerings": {"overflow": False}, **serve}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [one]}}))
    return model.served.central


def test_a_model_has_a_central_queue_where_its_dispatch_names_one() -> None:
    assert central() is None
    assert central(dispatch="weighted") is None
    assert central(dispatch="kairos") == CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.HOLD)
    found = central(dispatch="drs:64", too_late="commit")
    assert found == CentralPolicy(rule=CentralRule.DRS, threshold=64, too_late=TooLate.COMMIT)
    (model,) = make_live_models(
        Settings.model_validate({"service": {"serve": [{"model": "inception-v3"}]}, "dispatch": "fcfs"})
    )
    assert model.served.central == CentralPolicy(rule=CentralRule.FCFS, too_late=TooLate.OVERFLOW)
    spec = service_spec(Settings(), [model])
    assert SPEC.decode(SPEC.encode(spec)) == spec


def test_an_event_about_a_model_that_the_service_does_not_serve_is_refused() -> None:
    event = {"name": "sale", "at": "2026-12-01T18:10", "duration": "5m", "expect": "3x"}

    def made(model: str) -> int:
        said = {"model": "inception-v3", "forecaster": "last-value", "events": [event | {"model": model}]}
        return len(make_live_models(Settings.model_validate(said)))

    assert made("inception-v3") == 1
    with pytest.raises(Misconfigured, match="the event sale: unknown model 'inception-v4'; did you mean"):
        made("inception-v4")
    with pytest.raises(Misconfigured, match="unknown model 'rm2'"):
        made("rm2")


def test_the_policy_kairos_has_a_pool_within_its_budget_and_a_central_queue() -> None:
    types = {"types": ["c5n.2xlarge", "r5n.large"]}
    pool = {"model": "rm2", "policy_name": "kairos", "offerings": types, "objective": {"latency_ms": 370}}
    tree = {"service": {"serve": [pool, {"model": "inception-v3", "policy_name": "hedged"}]}}
    budget = {"policy": {"budget_usd_per_hour": 2.5}}
    settings = Settings.model_validate({**tree, **budget})
    rm2, other = make_live_models(settings)
    assert rm2.served.central == CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.HOLD)
    assert (other.served.central, other.bundle.controller.pool) == (None, None)
    plan = first_plan(rm2).plan
    assert plan is not None
    assert {item.offering.partition(":")[0] for item in plan.counts} == {"c5n.2xlarge", "r5n.large"}
    assert plan.usd_per_hour <= 2.5
    with pytest.raises(Misconfigured, match="the policy kairos needs a budget"):
        make_live_models(Settings.model_validate(tree))
    nobody = {"service": {"serve": [{"model": "inception-v3", "policy_name": "hedged"}]}}
    with pytest.raises(Misconfigured, match="no model of the service has the policy kairos"):
        make_live_models(Settings.model_validate({**nobody, **budget}))


def test_without_torch_the_default_service_leaves_out_the_model_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = make_live_models(Settings())
    monkeypatch.setattr("mark.config.served.find_spec", lambda _name: None)
    without = make_live_models(Settings())

    assert [model.name for model in with_it] == ["inception-v3", "digits"]
    assert [model.name for model in without] == ["inception-v3"]
    assert LEFT_OUT in without[0].notes
    assert LEFT_OUT not in with_it[0].notes


NO_LAMBDA = "offerings: {overflow: false, standby_share: 0.25}\n"
SERVES = "service: {serve: [{model: inception-v3, offerings: {types: [c5.large]%s}}]}\n"


@pytest.mark.parametrize(
    ("text", "overflows", "types"),
    [
        ("", True, {"c5.large", "c5.xlarge", "c5.2xlarge"}),
        (NO_LAMBDA, False, {"c5.large", "c5.xlarge", "c5.2xlarge"}),
        (NO_LAMBDA + SERVES % "", False, {"c5.large"}),
        (NO_LAMBDA + SERVES % ", overflow: true", True, {"c5.large"}),
        (SERVES % "", True, {"c5.large"}),
    ],
    ids=["nothing said", "default models", "a model's own types", "a model's own word", "no file's word"],
)
def test_what_the_file_says_of_offerings_holds_for_models_that_say_nothing_else(
    text: str, overflows: bool, types: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load_settings(path, {})
    written = (settings.model_dump_json(), settings.model_dump_json(exclude_defaults=True))
    for read in (settings, *(Settings.model_validate_json(one) for one in written)):
        model = next(one for one in make_live_models(read) if one.name == "inception-v3")
        assert (model.served.overflow is not None) == overflows
        assert {item.instance_type.name for item in model.served.offerings} <= types


def supernet_served(**more: object) -> ServedModel:
    settings = {"service": {"serve": [{"model": "supernet", "market": "on-demand", **more}]}}
    (model,) = make_live_models(Settings.model_validate(settings))
    return model.served


def test_agents_get_the_rule_and_the_floor_that_a_replay_reads() -> None:
    usual = supernet_served().variant_serving
    assert usual is not None
    assert (usual.dispatch, usual.floor) == (VariantDispatch(), 0)
    chosen = supernet_served(dispatch="maxacc", objective={"accuracy_floor": 0.97}).variant_serving
    assert chosen is not None
    assert chosen.dispatch == VariantDispatch(VariantRule.MAXACC)
    assert chosen.table.variants[chosen.floor].accuracy >= 0.97 > chosen.table.variants[chosen.floor - 1].accuracy


def test_a_backend_with_one_variant_chooses_none_and_says_so_where_a_floor_is_asked_of_it() -> None:
    server = {"kind": "oip", "target": "http://127.0.0.1:9000"}
    assert supernet_served(backend=server).variant_serving is None
    with pytest.raises(Misconfigured, match="its server runs one"):
        supernet_served(backend=server, objective={"accuracy_floor": 0.97})
    with pytest.raises(Misconfigured, match="no method switch"):
        supernet_served(backend={"kind": "python", "target": "mark.models.digits:Digits"}, dispatch="maxacc")


def test_a_rule_that_weighs_quality_serves_live_and_the_learned_one_needs_its_file(tmp_path: Path) -> None:
    serving = supernet_served(dispatch="qos-heuristic").variant_serving
    assert serving is not None
    assert (serving.dispatch, serving.weights) == (VariantDispatch(QosRule.HEURISTIC), "")
    settings = {"service": {"serve": [{"model": "supernet", "dispatch": "qos-rl"}]}}
    with pytest.raises(Misconfigured, match=r"none\.npz: no such file; make one with `mark qos train"):
        make_live_models(Settings.model_validate({**settings, "qos_policy": tmp_path / "none.npz"}))


def test_one_queue_for_variants_has_a_rule_that_chooses_them() -> None:
    assert supernet_served(dispatch="central:slackfit").has_central_queue
    assert not supernet_served().has_central_queue
    with pytest.raises(Misconfigured, match="which kairos does not choose"):
        supernet_served(dispatch="kairos")


def streaming(**entry: object) -> ServedModel:
    one = {"model": "inception-v3", "backend": {"kind": "emulated", "streams": True}, **entry}
    (model,) = make_live_models(Settings.model_validate({"service": {"serve": [one]}}))
    return model.served


def test_a_model_that_streams_has_no_overflow_and_may_have_an_objective_of_first_bytes() -> None:
    objective = {"measured": "first_byte", "latency_ms": 500, "rest_ms": 1500, "target": 0.98}
    served = streaming(objective=objective)
    assert (served.backend.streams, served.overflow) == (True, None)
    assert (served.slo.judged_s, served.slo.rest_s, served.slo.latency_s) == (0.5, 1.5, 2.0)
    assert served.slo.mean_latency_s == 1.75
    assert streaming().slo.first_byte_s is None


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"dispatch": "kairos", "offerings": {"overflow": False}}, "a central queue serves batches"),
        ({"backend": {"kind": "tf-serving", "target": "http://x:1", "streams": True}}, "TF Serving answers whole"),
        ({"objective": {"measured": "first_byte"}}, r"needs objective\.rest_ms"),
        ({"objective": {"rest_ms": 10}}, r"rest_ms is for objective\.measured: first_byte"),
        ({"backend": {}, "objective": {"measured": "first_byte", "rest_ms": 9}}, "does not stream"),
    ],
)
def test_what_does_not_go_with_streams_is_refused(entry: dict[str, object], text: str) -> None:
    with pytest.raises(Misconfigured, match=text):
        streaming(**entry)
