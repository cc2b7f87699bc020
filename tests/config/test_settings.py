from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from mark.config.policies import chosen_routing, named_world
from mark.config.settings import Settings, cache_dir, load_settings, settings_anywhere
from mark.dispatch.policy import Late, Routing
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.domain.offerings.times import LognormalTime, RebalanceAdvice
from scripts.docs import SETTINGS_INTRO


def config(folder: Path, text: str) -> Path:
    path = folder / "mark.yaml"
    path.write_text(text)
    return path


def refusal(path: Path | None, **flags) -> str:
    with pytest.raises(Misconfigured) as caught:
        load_settings(path, {key.replace("__", "."): (f"--{key}", value) for key, value in flags.items()})
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_without_file_and_flags_the_defaults_hold():
    assert load_settings(None, {}) == Settings()


def test_flags_override_the_file_and_the_file_the_defaults(tmp_path):
    path = config(tmp_path, "model: nasnet\nobjective: {latency_ms: 900, target: 0.95}\nseed: 4\n")

    settings = load_settings(path, {"objective.target": ("--slo-target", 0.9), "seed": ("--seed", None)})

    assert settings.model == "nasnet"
    assert (settings.objective.latency_ms, settings.objective.target) == (900, 0.9)
    assert settings.seed == 4
    assert settings.market is Market.ON_DEMAND


def test_the_whole_tree_can_be_written(tmp_path):
    text = """
        model: inception-v3
        objective: {latency_ms: 600, target: 0.98, mean_latency_ms: 200, late: shed}
        market: spot
        offerings: {types: [c5.large], overflow: false, standby_type: t2.large, standby_share: 0.25}
        profiles: [assumed-t3]
        policies: [mark, reactive]
        forecaster: last-value
        dispatch: weighted
        trace: {mean_rps: 50, start_s: 60, duration_s: 600}
        faults:
          stress: 2
          interrupts: [{at_min: 7, share: 0.4, offering: "c5.large:spot"}]
          refusals: [{from_min: 1, to_min: 2}]
          late_boots: [{from_min: 0, to_min: 5, factor: 2}]
        policy:
          lead_min: 4
          cooldown_min: 10
          max_instances: 80
          admission_factor: 0.95
          admission_confidence: 0.9
          monitor: {requests: 500, seconds: 30, count: 2, cooldown_s: 120, instance_type: c5.large}
          standby: {max_count: 20}
          overflow_limits: {concurrency: 100, burst: 50, memory_gib: 2}
          managed: {cpu: 1.3, gpu: 1.5}
        simulate:
          launch: {median_s: 200, p95_s: 300}
          wake: {median_s: 60, p95_s: 60}
          rebalance: {share: 0.5, lead: {median_s: 200, p95_s: 300}}
        models: mine.json
        seed: 3
    """

    settings = load_settings(config(tmp_path, text), {})

    assert settings.objective.late is Late.SHED
    assert chosen_routing(settings) is Routing.WEIGHTED
    assert settings.faults.interrupts[0].offering == "c5.large:spot"
    assert settings.faults.late_boots[0].factor == 2
    times = named_world(settings).times
    assert (times.launch, times.wake_large) == (LognormalTime(median_s=200, p95_s=300), times.wake)
    assert times.advice == RebalanceAdvice(share=0.5, lead=times.launch, unfounded=0.0)
    assert settings.policy.monitor.count == 2
    assert settings.models == tmp_path / "mine.json"


def test_paths_in_the_file_count_from_its_folder_and_flags_from_here(tmp_path):
    text = (
        "trace: {file: a.csv}\nout: run\nprices: p.json\nprofiles: [mine.json, assumed-t3]\nforecaster: f.py:F\n"
    )
    path = config(tmp_path, text)

    settings = load_settings(path, {})

    assert settings.trace.file == str(tmp_path / "a.csv")
    assert (settings.out, settings.prices) == (tmp_path / "run", tmp_path / "p.json")
    assert settings.profiles == (str(tmp_path / "mine.json"), "assumed-t3")
    assert settings.forecaster == f"{tmp_path}/f.py:F"
    assert load_settings(path, {"trace.file": ("--trace", "b.csv")}).trace.file == "b.csv"
    in_bucket = config(tmp_path, "trace: {file: 's3://bucket/prefix/'}\n")
    assert load_settings(in_bucket, {}).trace.file == "s3://bucket/prefix/"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("objectve: {}", "unknown key 'objectve'; did you mean 'objective'?"),
        ("objective: {latency: 3}", "unknown key in objective 'latency'; did you mean 'latency_ms'?"),
        (
            "faults: {interrupts: [{at_min: 1, share: 1, offring: x}]}",
            "unknown key in faults.interrupts.0 'offring'; did you mean 'offering'?",
        ),
        ("faults: {interrupts: [{at_min: 1}]}", "faults.interrupts.0.share is missing"),
        ("objective: {latency_ms: abc}", "objective.latency_ms should be a number, not 'abc'"),
        ("objective: {latency_ms: .nan}", "objective.latency_ms should be a finite number, not nan"),
        ("objective: {target: 98}", "objective.target should be less than or equal to 1, not 98"),
        ("policy: {lead_min: 0}", "policy.lead_min should be greater than or equal to 1, not 0"),
        ("policy: {leed_min: 4}", "unknown key in policy 'leed_min'; did you mean 'lead_min'?"),
        ("budget: {daily_usd: 9, monthly_usd: 1}", "budget: daily_usd: no more than monthly_usd"),
        ("rollout: {alarms: {to: [team]}}", "rollout.alarms.to.0 should read like team@example.com, not 'team'"),
        ("rollout: {account: 123456789012}", "rollout.account should be text, in quotes where it looks like"),
        (
            "rollout: {tags: {mark:role: x}}",
            "should read like cost-centre, in 1 to 128 letters, digits and _.:+@-",
        ),
        ("rollout: {tags: {AWS:x: y}}", "and not beginning with aws: or mark:, not 'AWS:x'"),
        *(
            (
                f"rollout: {{tags: {{'{key}': x}}}}",
                "which are what EC2 launches an instance with that reads its tags",
            )
            for key in ("cost centre", "team/cost", "a=b", ".", "_index")
        ),
        ("rollout: {tags: {team: a;b}}", "rollout.tags.team should read like research"),
        (
            "rollout: {tags: {team: 42}}",
            "rollout.tags.team should be text, in quotes where it looks like a number",
        ),
        ("rollout: {tags: {Team: a, x: b, team: c}}", "rollout: tags: IAM takes Team, team for one key"),
        (
            f"rollout: {{tags: {dict.fromkeys(map(str, range(21)), 'x')}}}",
            "rollout.tags should hold 20 at most, not 21",
        ),
        ("rollout: {tags: {'': x}}", "rollout.tags: a key should read like cost-centre, in 1 to 128 letters"),
        (f"rollout: {{tags: {{{'k' * 129}: x}}}}", f"not '{'k' * 59}... (129 characters)"),
        ("rollout: {network: {cidr: 10.0.0.1/16}}", "should be a network such as 10.77.0.0/16, not '10.0.0.1/16'"),
        ("rollout: {network: {cidr: 10.0.0.0/28}}", "rollout.network: cidr: from /16 to /24"),
        ("objective: 3", "objective should hold keys and values, not 3"),
        ("policies: mark", "policies should be a list, not 'mark'"),
        ("policies: []", "policies should name one at least, not []"),
        ("seed: 1.5", "seed should be a whole number, not 1.5"),
        ("market: spt", "market: unknown market 'spt'; did you mean 'spot'?"),
        ("dispatch: weighed", "dispatch: unknown dispatch rule 'weighed'; did you mean 'weighted'?"),
        ('dispatch: "fixed:"', "dispatch: unknown dispatch rule 'fixed:'; did you mean 'fixed:VARIANT'?"),
        ("simulate: {world: typicl}", "simulate.world: unknown world 'typicl'; did you mean 'typical'?"),
        ("- a", "a configuration holds keys and values"),
        ("model: [a", "line 1: expected ',' or ']'"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line_with_file_and_key(tmp_path, text, said):
    path = config(tmp_path, text)

    found = refusal(path)

    assert found.startswith(str(path))
    assert said in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("canary: [5, 200]", "canary should be percents that rise and end with 100, such as [5, 25, 100], not"),
        ("canary: [50, 25, 100]", "canary should be percents that rise"),
        ("canary: [0, 100]", "canary should be percents that rise"),
        ("dwell_s: 1e9", "dwell_s should be less than or equal to 604800"),
        ("ready_within_s: 1e9", "ready_within_s should be less than or equal to 604800"),
    ],
)
def test_steps_of_a_rollout_that_are_none_are_refused_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = config(tmp_path, f"service: {{rollouts: {{{text}}}}}")
    assert refusal(path).startswith(f"{path}: service.rollouts.{said}")


def test_a_rollout_that_only_compares_may_have_its_shadow_of_a_flag(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, "service: {rollouts: {canary: []}}"), {})
    assert settings.service.rollouts.canary == ()


def test_a_wrong_flag_is_named_as_the_user_wrote_it(tmp_path):
    path = config(tmp_path, "objective: {target: 0.9}")

    assert refusal(path, objective__target=98) == "--objective__target should be less than or equal to 1, not 98"


def test_a_key_that_stands_twice_in_a_mapping_is_refused(tmp_path):
    twice = config(tmp_path, "model: nasnet\nobjective:\n  latency_ms: 900\n  target: 0.9\n  latency_ms: 500\n")
    assert refusal(twice) == f"{twice}, line 5: latency_ms stands in line 3, too; keep one of them"


def test_aliases_of_aliases_are_counted_as_what_they_stand_for(tmp_path: Path) -> None:
    names = "abcdefg"
    laughs = [f"a: &a [{', '.join('x' * 9)}]"]
    laughs += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in pairwise(names)]
    path = config(tmp_path, "\n".join(laughs))
    assert refusal(path) == f"{path}, line 6: more than 100,000 values, aliases included"


def test_an_alias_saves_writing_a_part_twice(tmp_path: Path) -> None:
    models = "[{model: inception-v3, objective: &one {latency_ms: 700}}, {model: nasnet, objective: *one}]"
    served = load_settings(config(tmp_path, f"service: {{serve: {models}}}"), {}).service.serve
    assert [one.objective.latency_ms for one in served] == [700, 700]


@pytest.mark.parametrize("value", ["9" * 5000, "2026-13-45"])
def test_a_value_that_cannot_be_read_is_one_line(tmp_path: Path, value: str) -> None:
    path = config(tmp_path, f"policy: {{max_instances: {value}}}")
    assert refusal(path).startswith(f"{path}: ")


def test_a_missing_or_unreadable_file_is_one_line(tmp_path):
    assert "No such file" in refusal(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(tmp_path / "binary.yaml")


def test_the_documented_example_is_valid(tmp_path):
    example = re.search(r"```yaml\n(.*?)```", SETTINGS_INTRO, re.DOTALL)
    assert example is not None

    settings = load_settings(config(tmp_path, example[1]), {})

    assert set(yaml.safe_load(example[1])) <= set(Settings.model_fields)
    assert settings.faults.interrupts[0].share == 0.4


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"MARK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/mark")),
        ({}, Path.home() / ".cache" / "mark"),
    ],
)
def test_where_the_cache_lives(environment, expected):
    assert cache_dir(environment) == expected


def test_a_secret_in_the_place_of_its_name_is_refused_and_not_repeated(tmp_path: Path) -> None:
    config = tmp_path / "mark.yaml"
    config.write_text("rollout: {alarms: {webhook: 'https://hooks.example.com/hunter2'}}")
    with pytest.raises(Misconfigured, match=r"rollout\.alarms\.webhook should read like") as caught:
        load_settings(config, {})
    assert "hunter2" not in str(caught.value)


def test_stored_settings_mean_the_same_in_each_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = {
        "model": "a",
        "backend": {"kind": "python", "target": "zoo.py:A"},
        "profiles": ["own.json", "measured"],
    }
    tree = {"models": "models.json", "trace": {"file": "day.csv"}, "service": {"name": "s", "serve": [served]}}
    (tmp_path / "mark.yaml").write_text(json.dumps(tree))
    monkeypatch.chdir(tmp_path)
    text = settings_anywhere(load_settings(Path("mark.yaml"), {"prices": ("--prices", "prices.json")}))
    monkeypatch.chdir("/")
    stored = Settings.model_validate_json(text)

    assert stored.service == load_settings(tmp_path / "mark.yaml", {}).service
    assert stored.service.serve[0].profiles == (str(tmp_path / "own.json"), "measured")
    assert (stored.models, stored.prices) == (tmp_path / "models.json", tmp_path / "prices.json")
    assert stored.trace.file == str(tmp_path / "day.csv")
