"""The verdict: the cheapest option that keeps the objective, and what it says."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.billing.costs import CostUsd
from mark.domain.errors import Misconfigured
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaGuess, LambdaOffering
from mark.policies.present import HPA, LAMBDA, SAGEMAKER, parse_present, static_count
from mark.report.formatting import rate_words, usd_per_month_words
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import simulate_document
from mark.report.runs.run_verdict import verdict_of
from mark.report.service.service_verdict import service_replay_verdict
from mark.report.verdict import GuessedLambda, Option, Role, Verdict, verdict_document
from mark.simulator.results import ServedCounts
from mark.simulator.services.service_replay import ServiceReplay
from mark.simulator.services.service_run import join_runs
from tests.planner.builders import KNOWN
from tests.report.fakes import fake_run

SLO = Slo(latency_s=0.15, target=0.98)
HOUR_OF_MONTH = 1 / 730
GUESS = LambdaGuess(
    instance_type="c5.large",
    overflow=LambdaOffering(latency_s=0.1, provenance=KNOWN),
)


def option(role: Role, usd: float, attained: float | None = 1.0) -> Option:
    return Option(
        role=role,
        words=role.value,
        policy=f"{role.value}-policy",
        usd_per_month=usd,
        attained=attained,
        keeps_objective=attained is None or attained >= SLO.target,
    )


def run(policy: str, usd_per_month: float, attained: float = 1.0, **changed: object) -> ComparedRun:
    """A run of an hour."""
    cost = CostUsd(instances=usd_per_month * HOUR_OF_MONTH, standby=0.0, lambda_=0.0, overhead=0.0)
    return fake_run(policy, duration_s=3600, cost=cost, attained=attained, **{"assumed_profiles": (), **changed})


@given(
    st.lists(
        st.builds(option, st.sampled_from(Role), st.floats(0, 1e5), st.none() | st.floats(0, 1)),
        unique_by=lambda one: one.role,
    )
)
def test_no_option_that_keeps_the_objective_is_cheaper_by_a_cent(options: list[Option]) -> None:
    verdict = Verdict(slo=SLO, options=tuple(options))
    able = [one for one in options if one.keeps_objective]
    best = verdict.best
    assert (best is None) == (not able)
    if best is not None:
        assert best in able
        assert all(best.usd_per_month <= one.usd_per_month + 0.01 for one in able)
        assert verdict.sentence.startswith(("Run", "Keep"))
    assert all(one.words.lower() in verdict.sentence.lower() for one in options)


def test_of_two_that_cost_the_same_the_one_that_is_less_work_is_run() -> None:
    options = (option(Role.MARK, 1.0), option(Role.LAMBDA, 1.001), option(Role.TUNED, 1.0))
    best = Verdict(slo=SLO, options=options).best
    assert best is not None
    assert best.role is Role.LAMBDA


def test_a_manager_can_act_on_the_sentence() -> None:
    runs = [run("hedged", 44.58), run("sagemaker", 74.0), run("lambda-only", 1.43), run("autoscaler-spill", 50.0)]
    assert verdict_of(runs).sentence == (
        "Run Lambda alone: 1.43 USD a month, 98 % less than SageMaker as you would set it up. MArk: 44.58 USD. "
        "The best autoscaler you could build (autoscaler-spill): 50.00 USD. "
        "SageMaker as you would set it up: 74.00 USD."
    )


def test_who_is_told_to_run_lambda_alone_is_told_how_and_what_mark_around_it_costs() -> None:
    cost = CostUsd(instances=1.0 * HOUR_OF_MONTH, standby=0.0, lambda_=0.0, overhead=43.5 * HOUR_OF_MONTH)
    plain = run("hedged", 44.58)
    ours = dataclasses.replace(plain, result=dataclasses.replace(plain.result, cost=cost))
    how = verdict_of([ours, run("lambda-only", 1.43)]).how
    assert "policies: [lambda-only]" in how
    assert "MArk's own nodes, 43.50 USD a month" in how
    assert verdict_of([ours, run("lambda-only", 100.0)]).how == ""
    assert verdict_of([ours, run("lambda-only", 1.43)], LAMBDA).how == "", "it runs already"


def test_what_misses_the_objective_is_not_run_however_cheap() -> None:
    runs = [run("hedged", 44.58), run("sagemaker", 40.0, 0.9712), run("lambda-only", 3285.0, 1.0)]
    assert verdict_of(runs).sentence == (
        "Run MArk: 44.58 USD a month. SageMaker as you would set it up: 40.00 USD, but only 97.1 % in time. "
        "Lambda alone: 3,285 USD."
    )
    nothing = verdict_of([run("hedged", 44.58, 0.5)])
    assert nothing.best is None
    assert nothing.sentence == (
        "Nothing that was replayed keeps 98 % within 600 ms. MArk: 44.58 USD, but only 50.0 % in time. "
        "Lambda alone was not compared."
    )


def test_what_runs_now_is_what_the_user_says() -> None:
    runs = [run("hedged", 60.0), run("reactive", 50.0), run("lambda-only", 80.0), run("sagemaker", 55.0)]
    assert verdict_of(runs, HPA).sentence.startswith("Keep an HPA as you would set it up: 50.00 USD a month.")
    tuned = verdict_of(runs).option(Role.TUNED)
    assert tuned is not None
    assert tuned.policy == "reactive"
    told = verdict_of(runs, parse_present("20"))
    assert told.sentence.startswith("Keep what you run now, if it keeps the objective: 20.00 USD a month.")
    dear = verdict_of(runs[::2], parse_present("1200"))
    assert dear.sentence.startswith("Run MArk: 60.00 USD a month, 95 % less than what you run now.")


def test_nobody_is_told_to_run_what_knows_the_future() -> None:
    runs = [run("hedged", 60.0), run("greedy-oracle", 1.0, uses_truth=True), run("sagemaker", 61.0)]
    assert {one.policy for one in verdict_of(runs).options} == {"hedged", "sagemaker"}


def test_runs_on_another_load_are_not_compared() -> None:
    runs = [run("hedged", 60.0), run("sagemaker", 10.0, trace="other.csv"), run("lambda-only", 5.0, model="other")]
    assert [one.role for one in verdict_of(runs).options] == [Role.MARK]


def test_what_was_not_measured_is_named_with_the_money_at_stake() -> None:
    mine = run("hedged", 60.0, lambda_guess=GUESS)
    verdict = verdict_of([mine])
    usd = GUESS.overflow.usd_per_warm_request * mine.result.requests * 730
    assert verdict.lambda_guess_usd_per_month == pytest.approx(usd)
    assert verdict.sentence.endswith(
        f"Lambda alone was not compared: about {usd_per_month_words(usd)} a month if it is as fast as c5.large "
        "(`mark profile --as lambda` measures that)."
    )
    assert verdict_of([mine, run("lambda-only", 1.0)]).lambda_guess_usd_per_month is None


def test_a_guess_of_lambda_at_low_load_has_its_cold_starts() -> None:
    overflow = GUESS.overflow
    rps = math.log(10) / (52.5 * 60)
    guessed = GuessedLambda.of([(GUESS, rps, SLO)])
    each = overflow.usd_per_warm_request + 0.1 * overflow.usd_per_cold_start
    assert guessed.usd_per_month == pytest.approx(each * rps * 730 * 3600)
    assert guessed.words.endswith("; 10 % of the calls would start cold, 2.9 s later, and miss the objective")
    patient = GuessedLambda.of([(GUESS, rps, Slo(latency_s=5.0, target=0.98))])
    assert patient.words.endswith("2.9 s later")


def test_a_service_guesses_lambda_for_the_models_that_nobody_measured() -> None:
    known = run("hedged", 44.58).result
    guessed = dataclasses.replace(known, model="b", lambda_guess=GUESS, assumed_profiles=("c5.large: a formula",))
    verdict = service_replay_verdict(
        [join_runs(ServiceReplay(results=(known, guessed)), footprint_of(Settings(), models=2))]
    )
    assert (
        verdict.lambda_guess_usd_per_month == verdict_of([ComparedRun(result=guessed)]).lambda_guess_usd_per_month
    )
    assert " a month for b if it is as fast as c5.large " in verdict.sentence
    assert "A latency is assumed, not measured" in verdict.sentence


@pytest.mark.parametrize(("requests", "doubted"), [(0, False), (1, True), (49, True), (50, False)])
def test_an_answer_that_few_requests_give_says_so(requests: int, doubted: bool) -> None:
    served = ServedCounts(instance=requests, standby=0, lambda_=0, shed=0, in_flight=0)
    verdict = verdict_of([run("hedged", 44.58, served=served), run("lambda-only", 0.0, served=served)])
    sentence = verdict.sentence
    assert all(option.words in sentence for option in verdict.options)
    assert (verdict.best is None) == (requests == 0)
    assert ("came: too few to tell who keeps the objective." in sentence) == doubted
    assert sentence.startswith("No request came in this time") == (requests == 0)


def test_a_service_is_not_judged_by_models_with_few_requests() -> None:
    served = ServedCounts(instance=6, standby=0, lambda_=0, shed=0, in_flight=0)
    busy = run("hedged", 44.58).result
    rare = dataclasses.replace(run("hedged", 1.0, attained=5 / 6, served=served).result, model="rare")
    joined = join_runs(ServiceReplay(results=(busy, rare)), footprint_of(Settings(), models=2))
    verdict = service_replay_verdict([joined])
    assert joined.keeps_objectives
    assert verdict.best is not None
    assert verdict.sentence.endswith("Too few requests came for rare to tell who keeps the objective.")
    for missed in (
        dataclasses.replace(rare, served=dataclasses.replace(served, instance=60)),
        dataclasses.replace(rare, attained=0.5),  # three of six late are not chance
    ):
        joined = join_runs(ServiceReplay(results=(busy, missed)), footprint_of(Settings(), models=2))
        assert not joined.keeps_objectives
        assert service_replay_verdict([joined]).best is None


@pytest.mark.parametrize(("target", "requests"), [(0.8, 5), (0.9, 10), (0.98, 50), (0.99, 100)])
def test_enough_requests_come_where_the_objective_lets_one_of_them_be_late(target: float, requests: int) -> None:
    slo = Slo(latency_s=1.0, target=target)
    assert slo.can_tell(requests)
    assert not slo.can_tell(requests // 2)


def test_a_formula_is_no_measurement() -> None:
    guessed = verdict_of([run("hedged", 44.58, assumed_profiles=("c5.large from a formula",))]).sentence
    known = verdict_of([run("hedged", 44.58)]).sentence
    assert guessed == f"{known} A latency is assumed, not measured: measure it with `mark profile` first."


def test_less_than_a_cent_has_no_digits() -> None:
    assert "Run Lambda alone: under 1 cent a month" in verdict_of([run("lambda-only", 0.004)]).sentence


def test_the_document_begins_with_the_verdict() -> None:
    document = simulate_document([run("hedged", 44.58), run("lambda-only", 1.43)])
    assert next(iter(document)) == "verdict"
    verdict = document["verdict"]
    assert verdict is not None
    assert verdict["run"] == "lambda"
    assert [(one["role"], one["policy"]) for one in verdict["options"]] == [
        ("lambda", "lambda-only"),
        ("mark", "hedged"),
    ]
    assert simulate_document([])["verdict"] is None
    assert verdict_document(Verdict(slo=SLO, options=()))["run"] is None


@pytest.mark.parametrize(
    ("text", "policy", "usd"),
    [
        ("sagemaker", "sagemaker", 0.0),
        ("static:4", "static:4", 0.0),
        ("1200", "", 1200.0),
        ("0", "", 0.0),
    ],
)
def test_what_runs_now_is_named_or_priced(text: str, policy: str, usd: float) -> None:
    found = parse_present(text)
    assert (found.policy, found.usd_per_month) == (policy, usd)


@pytest.mark.parametrize("text", ["", "static:0", "static:", "-3", "nan", "inf", "eks", "static:123456"])
def test_what_is_neither_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"sagemaker, hpa, lambda, static:N"):
        parse_present(text)


def test_usual_words_stand_for_policies_that_exist() -> None:
    assert {SAGEMAKER.policy, HPA.policy} == {"sagemaker", "reactive"}
    assert static_count("static:12") == 12
    assert static_count("static-peak") is None


def test_from_which_load_ours_pays_stands_beside_what_came() -> None:
    plain = run("hedged", 1.0)
    assert verdict_of([plain]).changes_at == ""
    known = dataclasses.replace(plain, break_even_rps=1.42)
    came = rate_words(plain.result.requests / 3600)
    assert verdict_of([known]).changes_at == (
        f"MArk costs less than Lambda alone from a constant load of 1.4 requests/s on; {came} came on average."
    )
    twice = dataclasses.replace(known, result=dataclasses.replace(plain.result, speed=2.0))
    assert f"{rate_words(plain.result.requests / 1800)} came" in verdict_of([twice]).changes_at


@pytest.mark.parametrize(
    ("rps", "words"),
    [
        (1234.5, "1,234 requests/s"),
        (40.0, "40 requests/s"),
        (0.1, "0.1 requests/s"),
        (9 / 3600, "9 requests an hour"),
        (1 / 3600, "1 request an hour"),
        (3 / 86400, "3 requests a day"),
        (0.0, "0 requests a day"),
    ],
)
def test_rates_are_said_as_people_say_them(rps: float, words: str) -> None:
    assert rate_words(rps) == words
