"""What is wrong with a rollout is one line that says what to do."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from mark.config.settings import Settings
from mark.deployment.bundles import find_bundles
from mark.deployment.images import FOR_FUNCTIONS, FOR_PROCESSES, builds, process_images
from mark.deployment.synth import synthesise
from mark.domain.errors import Misconfigured
from mark.infra.app import what_is_missing
from mark.infra.bundles.build import packed
from mark.live.models import make_live_models
from tests.infra.conftest import settings

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com/shop"


def test_an_image_and_a_certificate_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"rollout\.image is missing: .*`mark init`.*--config"):
        synthesise(Settings())
    with pytest.raises(Misconfigured, match=r"rollout\.certificate is missing"):
        synthesise(settings(tmp_path, certificate=None))
    with pytest.raises(Misconfigured, match=r"rollout\.node\.name is missing"):
        synthesise(settings(tmp_path, shape="lean", certificate=None))
    with pytest.raises(Misconfigured, match=r"rollout\.certificate is for rollout\.shape: ha"):
        synthesise(settings(tmp_path, shape="lean"))


def test_a_mail_needs_somebody_to_read_it(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"rollout\.report\.to"):
        synthesise(settings(tmp_path, report={"sender": "a@example.com"}))
    mail = {"sender": "a@example.com", "to": ["b@example.com"], "reconcile": True}
    elsewhere = settings(tmp_path, report=mail)
    aws = elsewhere.service.aws.model_copy(update={"region": "eu-central-1"})
    service = elsewhere.service.model_copy(update={"aws": aws})
    with pytest.raises(Misconfigured, match=r"rollout\.report\.reconcile"):
        synthesise(elsewhere.model_copy(update={"service": service}))


def test_a_private_network_has_no_public_gateway(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="internet-facing"):
        synthesise(settings(tmp_path, network={"egress": "private"}, gateway={"scheme": "internet-facing"}))


@pytest.mark.parametrize("port", [0, 443, 8080])
def test_a_port_that_machines_use_is_not_one_for_grpc(tmp_path: Path, port: int) -> None:
    asked = settings(tmp_path)
    service = asked.service.model_copy(update={"grpc_port": port})
    with pytest.raises(Misconfigured, match=rf"service\.grpc_port {port}: .*1024 or above, and none of 6379"):
        synthesise(asked.model_copy(update={"service": service}))


def test_a_bundle_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    asked = settings(tmp_path)
    (tmp_path / "warm.zip").unlink()
    says = r"no bundle .*warm\.zip: `\S+ -P -m mark\.infra\.bundles\.build --to /\S+` makes it"
    with pytest.raises(Misconfigured, match=says):
        synthesise(asked)


def test_a_bundle_without_the_model_is_refused(tmp_path: Path) -> None:
    asked = settings(tmp_path).model_dump(mode="json")
    asked["service"]["serve"] = [
        {"model": "inception-v3", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}
    ]
    with pytest.raises(Misconfigured, match=r"infer\.zip is not a zip: .* --model mark\.models\.digits` makes it"):
        synthesise(Settings.model_validate(asked))
    (tmp_path / "infer.zip").write_bytes(packed({"mark/lambda_handlers/infer.py": b""}))
    with pytest.raises(Misconfigured, match=r"holds no mark\.models\.digits, which is the model inception-v3"):
        synthesise(Settings.model_validate(asked))


MINE = """
from mark.domain.tensor import TensorSpec

class Mine:
    inputs = outputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)

    def predict(self, tensors):
        return tensors
"""


def test_a_model_that_is_a_file_is_looked_for_in_the_zip_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.py").write_text(MINE)
    asked = settings(tmp_path).model_dump(mode="json")
    backend = {"kind": "python", "target": "mine/model.py:Mine"}
    asked["service"]["serve"] = [{"model": "inception-v3", "backend": backend}]
    own = Settings.model_validate(asked)
    models = make_live_models(own)
    (tmp_path / "infer.zip").write_bytes(packed({"mark/lambda_handlers/infer.py": b""}))
    with pytest.raises(Misconfigured, match=r"holds no mine/model\.py, .* by its file goes into an image"):
        find_bundles(own, models)
    (tmp_path / "infer.zip").write_bytes(packed({"mine/model.py": b""}))
    assert {bundle.handler for bundle in find_bundles(own, models)} >= {"infer", "warm"}


def test_an_image_that_is_missing_comes_with_the_commands_that_make_it() -> None:
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/shop/infer:1"
    words = shlex.split(builds(image, FOR_FUNCTIONS).split("`")[1])
    dockerfile = Path(words[words.index("-f") + 1])
    assert dockerfile.name == "infer.Dockerfile"
    assert dockerfile.is_file()
    assert words[:4] == [sys.executable, "-P", "-m", "mark.infra.wheel"]
    assert words[words.index("-t") + 1] == words[-1] == image
    assert "--provenance=false" in words
    assert "--provenance=false" not in builds(image, FOR_PROCESSES)


@pytest.mark.parametrize(
    ("rollout", "platform"),
    [
        ({}, "linux/amd64,linux/arm64"),
        ({"shape": "ha"}, "linux/amd64,linux/arm64"),
        ({"shape": "ha", "machines": [{}]}, "linux/amd64"),
    ],
    ids=["nodes are Graviton", "gateways are Graviton", "nothing is Graviton"],
)
def test_an_image_is_built_for_all_processors_that_it_runs_on(rollout: dict[str, object], platform: str) -> None:
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/shop/mark:1"
    settings = Settings.model_validate({"rollout": rollout})
    wanted = process_images(settings, make_live_models(settings))[0]
    words = shlex.split(builds(image, FOR_PROCESSES, wanted.architectures, wanted.target).split("`")[1])
    assert words[words.index("--platform") + 1] == platform
    assert ("push" in words) != ("--push" in words), "Docker keeps images of one processor alone"


DIGITS = {"model": "digits", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}
OWN = {"agent_image": f"{REGISTRY}/agent:1", "training_image": f"{REGISTRY}/training:1"}


@pytest.mark.parametrize(
    ("serve", "rollout", "targets"),
    [
        ({"model": "inception-v3"}, {}, ("models", "service")),
        ({"model": "inception-v3", "forecaster": "ridge"}, {}, ("service", "service")),
        ({**DIGITS, "forecaster": "ridge"}, {}, ("models", "models")),
        (DIGITS, OWN, ("service", "models")),
        ({"model": "inception-v3"}, OWN, ("service", "service")),
    ],
    ids=["trains", "no torch", "in Python", "images of their own", "its own server"],
)
def test_torch_is_only_in_the_images_of_processes_that_use_it(
    serve: dict[str, object], rollout: dict[str, object], targets: tuple[str, ...]
) -> None:
    image = f"{REGISTRY}/mark:1"
    settings = Settings.model_validate({"service": {"serve": [serve]}, "rollout": {"image": image, **rollout}})
    found = process_images(settings, make_live_models(settings))
    assert [one.key for one in found] == ["image", "agent_image"]
    assert tuple(one.target for one in found) == targets
    assert found[0].architectures == (("arm64",) if rollout else ("amd64", "arm64"))
    words = shlex.split(builds(image, FOR_PROCESSES, ("arm64",), found[0].target).split("`")[1])
    assert words[words.index("--target") + 1] == targets[0]


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({"network": {"zones": ["us-east-1a"]}}, "two at least"),
        ({"network": {"vpc": "vpc-1"}}, "one for each zone"),
        ({"machines": [{}, {}]}, "each kind once"),
        ({"machines": [{"architecture": "arm64", "accelerator": "nvidia"}]}, "name one"),
        ({"machines": [{"disk_gib": 7}]}, "takes 8, not 7"),
        ({"machines": [{"accelerator": "nvidia", "disk_gib": 20}]}, "takes 30, not 20"),
        ({"image": "mark:1"}, "image"),
        ({"owner": "a\nb"}, "owner"),
        ({"report": {"schedule": "daily"}}, "schedule"),
    ],
)
def test_settings_that_cannot_be_are_refused(rollout: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Settings.model_validate({"rollout": rollout})


def test_an_image_of_ones_own_may_be_small() -> None:
    machine = {"ami": "ami-1", "disk_gib": 8}
    assert Settings.model_validate({"rollout": {"machines": [machine]}}).rollout.machines[0].disk_gib == 8


def test_a_machine_without_node_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    lacking = what_is_missing()
    assert "Node.js" in lacking or "make setup" in lacking
