"""`mark supernet`, with a user's own network of a few hundred weights, and the figures that are shipped."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from mark.catalog.load import SUPERNETS, supernet_folder
from mark.catalog.schema import parse_profiles
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Evidence
from mark.offline.supernet.artifact import read_artifact
from mark.offline.supernet.card import card_text
from mark.offline.supernet.served import served_supernet
from tests.models import small_net
from tests.once import once_a_run

TRAIN = ("supernet", "train", "--target", "small_net.py:SmallNet", "--epochs", "4", "--batches", "1,4")
QUICK = ("--seconds", "0.05")
ROOT = Path(small_net.__file__).parents[2]
LEAST_MEMORY_SAVING = 2.6
"""SuperServe, section 3.1."""
MOST_MEMORY, LEAST_SPEED_UP = 1.3, 50
"""Of a supernet beside its largest subnet; of a switch beside loading the subnet's weights."""


@pytest.fixture
def folder(mark) -> Path:
    shutil.copy(small_net.__file__, "small_net.py")
    return Path()


@pytest.fixture
def trained(mark, folder, tmp_path_factory) -> dict:
    """The answer of `mark supernet train`, and its artifact `mine`: trained once, written anew for each test."""

    def made() -> tuple[dict, dict[Path, bytes]]:
        answer = mark(*TRAIN, *QUICK, "--model", "thirds", "--as", "c5.xlarge", "--out", "mine", "--json")
        assert answer.status == 0, answer.err
        return json.loads(answer.out), {file: file.read_bytes() for file in Path("mine").iterdir()}

    found, files = once_a_run(tmp_path_factory, "trained-supernet", made)
    Path("mine").mkdir(exist_ok=True)
    for file, content in files.items():
        file.write_bytes(content)
    return found


def test_a_user_s_own_network_is_trained_profiled_and_shown(mark, trained):
    found = trained

    assert (found["name"], found["possible"], found["evaluated"], found["calibrated"]) == ("thirds", 16, 16, 16)
    assert (found["learned"], found["chosen"], found["judged"]) == (120, 30, 150)
    assert found["actuation"]["largest_difference"] <= 1e-5 * found["actuation"]["largest_score"]
    assert found["memory_ratio"] == pytest.approx(found["memory_bytes"] / found["six_bytes"])
    for variant in found["variants"]:
        assert variant["latency_ms_by_batch"].keys() == {"1", "4"}
    losses = [variant["chosen_loss"] for variant in found["variants"]]
    assert losses == sorted(losses, reverse=True)

    shown = mark("supernet", "show", "--artifact", "mine", "--json")
    assert json.loads(shown.out)["variants"][0]["accuracy"] == found["variants"][0]["accuracy"]
    in_words = mark("supernet", "show", "--artifact", "mine").out
    assert found["variants"][0]["variant"] in in_words
    assert all(word in in_words for word in ("SubnetNorm", "extracted", "switching", "reloading", "memory"))


def test_profiles_are_one_a_variant_with_its_accuracy(trained):
    found = trained
    profiles = parse_profiles(Path("mine/profile.json").read_text(), "profile.json")

    assert {(p.model, p.instance_type, p.provenance.evidence) for p in profiles} == {
        ("thirds", "c5.xlarge", Evidence.STAND_IN)
    }
    told = [(variant["variant"], variant["accuracy"]) for variant in found["variants"]]
    assert [(p.variant, p.accuracy) for p in profiles] == [
        (name, pytest.approx(share, abs=1e-6)) for name, share in told
    ]


def test_a_trained_supernet_is_served_and_switches_in_place(trained, monkeypatch):
    found = trained
    mine = Path("mine").absolute()
    monkeypatch.chdir("mine")
    model = served_supernet(mine)
    best = max(found["variants"], key=lambda variant: (variant["accuracy"], variant["variant"]))["variant"]
    items = {"input": np.random.default_rng(0).standard_normal((4, *model.inputs[0].shape[1:])).astype(np.float32)}

    first = model.predict(items)["probabilities"]
    answers = {}
    for variant in [one["variant"] for one in found["variants"]]:
        model.switch(variant)
        answers[variant] = model.predict(items)["probabilities"]
    assert np.array_equal(answers[best], first)
    assert len({answer.tobytes() for answer in answers.values()}) == len(answers)
    with pytest.raises(Misconfigured, match="no variant 'huge'"):
        model.switch("huge")


def test_a_trained_supernet_is_measured_again(mark, trained):
    before = trained
    answer = mark("supernet", "profile", "--artifact", "mine", "--batches", "2", *QUICK, "--json")

    assert answer.status == 0, answer.err
    after = json.loads(answer.out)
    assert [v["accuracy"] for v in after["variants"]] == [v["accuracy"] for v in before["variants"]]
    assert {tuple(v["latency_ms_by_batch"]) for v in after["variants"]} == {("2",)}
    shown = json.loads(mark("supernet", "show", "--artifact", "mine", "--json").out)
    for one, other in zip(shown["variants"], after["variants"], strict=True):
        assert one["latency_ms_by_batch"] == pytest.approx(other["latency_ms_by_batch"], abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class SmallNet:", "class Other:", "SmallNet"),
        ("def network(self)", "def net(self)", "lacks network"),
        ("return Net()", "return None", "must make an nn.Module"),
        ("labels = rng.integers(3, size=150)", "raise OSError('no disk')", "failed: OSError: no disk"),
        ("return images, labels", "return images, labels[1:]", "one label for each"),
        ('outer=(("stem"', 'outer=(("steam"', "no layer that can be sliced is named 'steam'"),
        ("depths=(1, 2)", "depths=(2, 1)", "depths must rise"),
        ("Linear(12, 3)", "Linear(12, 2)", "failed: IndexError"),
    ],
    ids=["name", "protocol", "network", "examples", "labels", "pattern", "space", "classes"],
)
def test_what_is_wrong_with_a_user_s_network_is_one_line(mark, folder, old, new, said):
    text = Path("small_net.py").read_text()
    assert old in text
    Path("small_net.py").write_text(text.replace(old, new))

    answer = mark(*TRAIN, *QUICK, "--out", "mine")

    assert answer.status == 2
    assert said in answer.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--epochs", "0"), "--epochs must be 1 or more"),
        (("train", "--as", "c5.lage"), "did you mean 'c5.large'"),
        (("profile", "--seconds", "0"), "--seconds must be above 0"),
        (("profile", "--artifact", "none"), "no supernet in none"),
        (("profile", "--gpu"), "say which instance type this machine's GPU stands for: --as TYPE"),
        (("show", "--artifact", "none"), "mark supernet train --out none"),
    ],
    ids=["epochs", "type", "seconds", "profile", "gpu", "show"],
)
def test_a_wrong_flag_is_one_line(mark, arguments, said):
    answer = mark("supernet", *arguments)

    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err


def test_without_a_gpu_none_is_measured(mark, trained, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    answer = mark("supernet", "profile", "--artifact", "mine", "--gpu", "--as", "g4dn.xlarge", *QUICK)

    assert answer.status == 2
    assert "torch sees no GPU here" in answer.err


def test_a_torn_artifact_is_refused(mark, trained):
    figures = json.loads(Path("mine/supernet.json").read_text())
    del figures["trained"]["seed"]
    Path("mine/supernet.json").write_text(json.dumps(figures))

    assert "trained.seed" in mark("supernet", "show", "--artifact", "mine").err


@pytest.mark.parametrize("name", SUPERNETS)
def test_the_shipped_figures_show_what_the_paper_claims(name):
    artifact = read_artifact(supernet_folder(name))
    known, actuation = artifact.trained, artifact.actuation

    assert (known.name, known.target) == (name, SUPERNETS[name])
    assert len(known.six) == 6
    assert known.memory_ratio <= 1 / LEAST_MEMORY_SAVING
    assert known.largest_ratio <= MOST_MEMORY
    assert actuation.largest_difference <= 1e-5 * actuation.largest_score
    assert actuation.switch_median_s <= 1e-3 < actuation.reload_median_s
    assert actuation.reload_median_s >= LEAST_SPEED_UP * actuation.switch_median_s
    assert known.subnets[-1].accuracy > known.subnets[0].accuracy


def test_batch_norms_need_statistics_of_each_subnet():
    known = read_artifact(supernet_folder("supernet")).trained

    assert known.calibrated == known.possible == 81
    assert known.mean_accuracy >= known.mean_shared_accuracy + 0.2


def test_the_transformer_offers_many_subnets():
    known = read_artifact(supernet_folder("supernet-text")).trained

    assert len(known.subnets) >= 90
    assert known.subnets[-1].accuracy >= known.subnets[0].accuracy + 0.03


@pytest.mark.parametrize("name", SUPERNETS)
def test_the_shipped_profile_says_where_it_was_measured(name):
    artifact = read_artifact(supernet_folder(name))

    for profile in artifact.profiles:
        known = profile.provenance
        assert known.evidence is Evidence.STAND_IN
        assert known.machine
        assert known.date
        assert known.source.startswith("mark supernet")
        assert profile.max_batch == 32


@pytest.mark.parametrize("name", SUPERNETS)
def test_the_shipped_card_has_the_shipped_figures(name):
    artifact = read_artifact(supernet_folder(name))
    card = (supernet_folder(name) / "card.md").read_text()

    assert card == card_text(artifact.trained, artifact.actuation, artifact.profiles)


def test_the_page_s_own_network_is_trained_as_it_says(mark):
    page = (ROOT / "docs" / "papers.md").read_text()
    (code,) = re.findall(r"```python\n(# my_net.py\n.*?)```", page, re.DOTALL)
    (train,) = re.findall(r"^mark (supernet train --target my_net\S+ --out mine --epochs 40)$", page, re.MULTILINE)
    Path("my_net.py").write_text(code)

    answer = mark(*train.split(), "--batches", "1", *QUICK, "--json")

    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    assert (found["name"], found["possible"]) == ("my-net", 12)
    assert found["mean_accuracy"] > 0.8
    assert mark("supernet", "show", "--artifact", "mine").status == 0


@pytest.mark.slow
def test_the_shipped_supernet_is_trained_by_its_command(mark):
    answer = mark("supernet", "train", "--seconds", "5", "--out", "again", "--json")
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)

    assert found["memory_ratio"] <= 1 / LEAST_MEMORY_SAVING
    assert found["mean_accuracy"] >= found["mean_shared_accuracy"] + 0.2
    assert min(variant["accuracy"] for variant in found["variants"]) >= 0.9
    assert found["actuation"]["largest_difference"] <= 1e-5 * found["actuation"]["largest_score"]
