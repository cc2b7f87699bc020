"""Profiles and models: what is shipped, what is assumed, and what a broken file says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.load import ASSUMED_PREFIX, load_models, load_profiles, model, shipped_sets
from mark.catalog.schema import format_profiles, parse_profiles
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import (
    UNSTATED,
    AlsoMeasured,
    Evidence,
    LatencyPoint,
    Parallelism,
    Profile,
    Provenance,
)
from tests.tables import rows

ALL_MODELS = (
    *("bert-base", "dien", "inception-v3", "lstm-ptb", "mtwnd", "nasnet", "ncf", "opennmt-ende", "resnet-50"),
    *("rm2", "supernet", "supernet-text", "wnd"),
)


def profile(points, *, name="mine", instance_type="c5.large", evidence=Evidence.MEASURED, formula=""):
    return Profile(
        model=name,
        instance_type=instance_type,
        points=tuple(LatencyPoint(batch=batch, latency_s=ms / 1000) for batch, ms in points),
        provenance=Provenance(evidence=evidence, source="a test", date="2026-01-01", formula=formula),
    )


def write(folder, *profiles):
    path = folder / "mine.json"
    path.write_text(format_profiles(profiles))
    return path


def test_an_unknown_model_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match="did you mean 'inception-v3'"):
        model("inception_v3")
    with pytest.raises(Misconfigured, match="did you mean 'nasnet'"):
        load_profiles("nasnett")


def test_the_artifact_s_capacities(published_dir):
    for row in rows(published_dir / "mark_artifact_capacity.csv"):
        found = load_profiles(row["model"].replace("_", "-")).of(row["instance_type"])
        batch = int(row["batch_size"])
        assert [point.batch for point in found.points] == [batch]
        assert found.provenance.evidence is Evidence.PUBLISHED
        assert batch / found.latency_s(batch) == pytest.approx(int(row["requests_per_minute"]) / 60, rel=5e-5)


def test_kairos_points_are_kept_as_measured(published_dir):
    measured = rows(published_dir / "kairos_latency_profile.csv")
    sets = {name: load_profiles(name) for name in {row["model"] for row in measured}}
    points = {
        (name, item.instance_type, point.batch): point.latency_s
        for name, found in sets.items()
        for item in found.profiles
        for point in item.points
    }
    assert len(points) == len(measured) == 2000
    for row in measured:
        key = (row["model"], row["instance_type"], int(row["batch_size"]))
        assert points[key] == pytest.approx(float(row["total_mean_ms"]) / 1000)
    assert {p.provenance.evidence for found in sets.values() for p in found.profiles} == {Evidence.MEASURED}


def test_burst_and_lambda_profiles_of_the_paper():
    inception = load_profiles("inception-v3")
    assert inception.of("t2.medium").latency_s(1) == pytest.approx(0.14037)
    assert inception.lambda_.latency_s(1) == pytest.approx(0.38)
    assert "lambda" not in inception.instance_types
    assert load_profiles("opennmt-ende").lambda_.latency_s(1) == pytest.approx(3.1)
    assert load_profiles("nasnet").lambda_ is None


@pytest.mark.parametrize("name", ALL_MODELS)
def test_nothing_assumed_unless_named(name):
    found = load_profiles(name)
    assert found.assumed == ()
    assert all(p.provenance.evidence is not Evidence.ASSUMED for p in found.profiles)


def test_assumed_sets_hold_nothing_else_and_say_their_formula():
    assumed = [name for name in shipped_sets() if name.startswith(ASSUMED_PREFIX)]
    assert assumed == ["assumed-batch-curve", "assumed-current", "assumed-lambda", "assumed-t3"]
    for name in assumed:
        for served in ALL_MODELS:
            base = load_profiles(served)
            named = load_profiles(served, (name,))
            added = set(named.profiles) - set(base.profiles)
            assert len(named.assumed) == len(added)
            assert (f"{name} has no profile of {served}" in named.warnings) == (not added)


def test_assumed_numbers_follow_their_formulas():
    inception, nasnet = load_profiles("inception-v3"), load_profiles("nasnet")
    t3 = load_profiles("inception-v3", ("assumed-t3",))
    assert t3.of("t3.medium").points == inception.of("t2.medium").points
    ratio = inception.of("c5.large").latency_s(1) / inception.of("c5.xlarge").latency_s(1)
    on_lambda = load_profiles("nasnet", ("assumed-lambda",)).lambda_
    assert on_lambda.latency_s(1) == pytest.approx(nasnet.of("c5.xlarge").latency_s(1) * ratio * 1.8, rel=1e-5)
    curve = load_profiles("inception-v3", ("assumed-batch-curve",)).of("p2.xlarge")
    full_s = inception.of("p2.xlarge").latency_s(8)
    expected = [(b, pytest.approx(full_s * (0.5 + 0.5 * b / 8), rel=1e-5)) for b in (1, 2, 4, 8)]
    assert [(p.batch, p.latency_s) for p in curve.points] == expected


def test_a_missing_profile_names_what_is_missing_and_what_is_there():
    with pytest.raises(Misconfigured, match=r"no profile of lstm-ptb on c5\.large: .*\(profiled: c5\.xlarge\)"):
        load_profiles("lstm-ptb").of("c5.large")


def test_a_dip_is_a_warning_that_names_the_point(tmp_path):
    path = write(tmp_path, profile([(1, 100.0), (2, 94.0), (4, 96.0)]))
    found = load_profiles("mine", (path,))
    assert len(found.warnings) == 1
    assert "mine on c5.large: batches of 2 (94 ms) took over 5 % less" in found.warnings[0]
    assert found.of("c5.large").latency_s(2) == 0.1


def test_a_named_file_adds_and_replaces(tmp_path):
    path = write(
        tmp_path,
        profile([(1, 200.0)], name="inception-v3"),
        profile([(1, 90.0)], name="inception-v3", instance_type="m5.large"),
        profile([(1, 1.0)], name="nasnet"),
    )
    found = load_profiles("inception-v3", (str(path),))
    assert found.of("c5.large").latency_s(1) == 0.2
    assert found.of("m5.large").latency_s(1) == 0.09
    assert found.of("c5.xlarge") == load_profiles("inception-v3").of("c5.xlarge")
    assert found.warnings == ()


def test_a_set_that_does_not_exist_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match="unknown profile set 'assumed-t4'; did you mean 'assumed-t3'"):
        load_profiles("inception-v3", ("assumed-t4",))


ENTRY = '"model": "m", "instance_type": "c5.large", "source": "s", '


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {"2": 1.0, "1": 1.0}', "batch sizes must rise"),
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {"0": 1.0}', "batch sizes must rise"),
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {"1": -1.0}', "greater than 0"),
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {"1": NaN}', "finite"),
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {"1": 1, "1": 2}', "key 1 stands twice"),
        (ENTRY + '"evidence": "measured", "latency_ms_by_batch": {}', "latency_ms_by_batch should not be empty"),
        (ENTRY + '"evidence": "assumed", "latency_ms_by_batch": {"1": 1.0}', "needs its formula"),
        (ENTRY + '"evidence": "guessed", "latency_ms_by_batch": {"1": 1.0}', "evidence should be 'measured'"),
        (
            ENTRY + '"evidence": "measured", "replicas": 0, "latency_ms_by_batch": {"1": 1}',
            "must be 1 or more, not 0x",
        ),
        (
            ENTRY + '"evidence": "measured", "threads": 0, "latency_ms_by_batch": {"1": 1}',
            "must be 1 or more, not 1x0",
        ),
        (ENTRY + '"evidence": "measured", "replicas": 2, "latency_ms_by_batch": {"1": 1}', "need their number of"),
        (ENTRY + '"evidence": "measured", "speed": 1, "latency_ms_by_batch": {"1": 1.0}', "unknown key 'speed'"),
    ],
)
def test_a_broken_profile_is_one_line(tmp_path, entry, said):
    path = tmp_path / "mine.json"
    path.write_text(f'{{"format": "mark-profiles/1", "profiles": [{{{entry}}}]}}')
    with pytest.raises(Misconfigured, match=said) as caught:
        load_profiles("m", (path,))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


WHOLE = '{"name": "mine", "latency_ms": 9, "target_percent": 99, "memory_gib": 1, "payload_mib": 0.1'


def refusal_of(folder, models):
    path = folder / "model.json"
    path.write_text(f'{{"format": "mark-models/1", "models": [{models}]}}')
    with pytest.raises(Misconfigured) as caught:
        load_models(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_all_that_a_model_lacks_is_said_at_once(tmp_path):
    assert refusal_of(tmp_path, '{"name": "mine", "latency_ms": 9}') == (
        "the model mine lacks target_percent, memory_gib, payload_mib"
    )
    assert "model number 2 lacks name, " in refusal_of(tmp_path, WHOLE + '}, {"latency_ms": 9}')


def test_several_mistakes_are_said_in_the_words_of_the_file(tmp_path):
    text = refusal_of(tmp_path, '{"name": "mine", "latency_ms": -9, "memory": 1, "cpu": "perhaps"}')

    assert "the model mine lacks target_percent, memory_gib, payload_mib" in text
    assert "the model mine: latency_ms should be greater than 0, not -9" in text
    assert "the model mine: unknown key 'memory'; did you mean 'memory_gib'?" in text
    assert "the model mine: cpu should be true or false, not 'perhaps'" in text
    assert "models.0" not in text
    assert "\n" not in text


def test_sources_may_be_left_out_and_are_then_not_stated(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(f'{{"format": "mark-models/1", "models": [{WHOLE}}}]}}')
    (tmp_path / "profile.json").write_text(
        '{"format": "mark-profiles/1", "profiles": [{"model": "mine", "instance_type": "c5.large", '
        '"evidence": "measured", "latency_ms_by_batch": {"1": 3}}]}'
    )

    assert load_models(path)["mine"].source == "objective: not stated; memory: not stated; payload: not stated"
    assert load_profiles("mine", (tmp_path / "profile.json",)).of("c5.large").provenance.source == "not stated"


def test_a_stand_in_names_the_machine_that_was_measured(tmp_path):
    entry = ENTRY.replace('"m"', '"mine"') + '"evidence": "stand-in", "latency_ms_by_batch": {"1": 1.0}'
    path = tmp_path / "mine.json"
    path.write_text(f'{{"format": "mark-profiles/1", "profiles": [{{{entry}}}]}}')
    with pytest.raises(Misconfigured, match="needs the machine that was measured"):
        load_profiles("mine", (path,))
    path.write_text(
        path.read_text().replace('"evidence"', '"machine": "a laptop", "unstable_batches": [8], "evidence"')
    )

    found = load_profiles("mine", (path,))
    assert found.stand_ins == ("mine on c5.large: measured on a laptop",)
    assert found.assumed == ()
    assert found.warnings == (
        "mine on c5.large: batches of 8 were not stable when the time to measure was up; measure longer",
    )


def test_a_profile_stands_once(tmp_path):
    with pytest.raises(Misconfigured, match=r"mine \(base\) on c5\.large stands twice"):
        load_profiles("mine", (write(tmp_path, profile([(1, 1.0)]), profile([(1, 2.0)])),))


latencies_ms = st.integers(1, 10**12).map(lambda nanoseconds: nanoseconds / 10**6)


@given(
    points=st.dictionaries(st.integers(1, 4096), latencies_ms, min_size=1, max_size=8),
    source=st.text(min_size=1, max_size=20),
    evidence=st.sampled_from(Evidence),
    parallelism=st.one_of(st.just(UNSTATED), st.builds(Parallelism, st.integers(1, 99), st.integers(1, 99))),
)
def test_any_profile_survives_the_round_trip(points, source, evidence, parallelism):
    measured = tuple(LatencyPoint(batch=batch, latency_s=ms / 1000) for batch, ms in sorted(points.items()))
    also = (AlsoMeasured(parallelism=parallelism, points=measured),)
    made = Profile(
        model="m",
        instance_type="c5.large",
        points=measured,
        provenance=Provenance(
            evidence=evidence, source=source, formula="f", machine="a laptop", also_measured=also
        ),
        parallelism=parallelism,
    )
    assert parse_profiles(format_profiles([made]), "round trip") == (made,)
