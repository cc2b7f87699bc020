"""Promises of a wheel without an extra, with `local`, and with `infra`."""

from __future__ import annotations

import json
import urllib.request
from shutil import which

from scripts.try_wheel.installation import Broken, Installation

OF_EXTRAS = {
    "torch",
    "sklearn",
    "aws_cdk",
    "constructs",
    "cdk_nag",
    "ray",
    "grpc",
    "google",
    "opentelemetry",
}
"""What modules may miss where no extra is installed."""
OF_INFRA = {"aws_cdk", "constructs", "cdk_nag"}
IMPORTS = """
import importlib, json, pkgutil, sys
lacking, modules = {}, 0
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    assert package.__file__.startswith(sys.prefix), f"{name} is that of {package.__file__}"
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        modules += 1
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            lacking.setdefault((error.name or "").partition(".")[0], []).append(found.name)
print(json.dumps({"modules": modules, "lacking": lacking}))
"""
MODEL = """
import numpy as np
from mark.domain.tensor import TensorSpec


class Mean:
    inputs = (TensorSpec(name="row", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="mean", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        return {"mean": np.mean(tensors["row"], axis=1, keepdims=True)}
"""
ROW, MEAN = [1.0, 2.0, 3.0, 6.0], 3.0
SERVICE = """
models: own/model.json
profiles: [own/profile.json]
service:
  port: 0
  status_port: 0
  gateways: 1
  controllers: 1
  serve:
    - {model: inception-v3, expected_rps: 10, offerings: {types: [c5.large, c5.xlarge]}}
    - {model: mean, backend: {kind: python, target: "own/mean.py:Mean"}, expected_rps: 5}
"""
ROLLOUT = """
models: own/model.json
profiles: [own/profile.json]
service:
  serve:
    - model: mean
      backend: {kind: python, target: "own/mean.py:Mean"}
      offerings: {overflow: false}
rollout:
  owner: team@example.com
  image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1
  network: {zones: [us-east-1a, us-east-1b]}
  functions: {bundles: dist/lambda}
"""
REPLAYS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("policies",),
    ("models",),
    ("trace", "generate", "constant", "--rps", "20", "--duration-s", "900", "--out", "load.csv.gz"),
    ("plan", "--model", "inception-v3", "--rate", "120"),
    ("simulate", "--trace", "load.csv.gz", "--model", "inception-v3", "--policy", "reactive"),
    ("init", "--out", "first.yaml"),
)
WEIGHT = """
import sysconfig
from importlib import metadata
from pathlib import Path
packages = {one.name for one in metadata.distributions()} - {"pip", "setuptools", "wheel"}
size = sum(file.stat().st_size for file in Path(sysconfig.get_path("purelib")).rglob("*") if file.is_file())
print(f"{len(packages)} packages, {size / 1e6:.0f} MB with pip")
"""
AGENT = """
import time
begun = time.perf_counter()
import mark.live.processes.agent
took = time.perf_counter() - begun
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(f"an agent's import: {took:.2f} s, {int(peak) / 1024:.0f} MiB")
"""
BASE: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("simulate", "--help"),
    ("policies",),
    ("models",),
    ("trace", "generate", "constant", "--rps", "20", "--duration-s", "900", "--out", "load.csv.gz"),
    ("init", "--out", "first.yaml"),
)
CONFIG = ("--config", "mark.yaml")
BUNDLES = ("-P", "-m", "mark.infra.bundles.build", "warm", "interruption", "orphans", "probe")
WHEEL = ("-P", "-m", "mark.infra.wheel", "--to", "wheel")


def try_base(there: Installation) -> list[str]:
    """Try the base: commands that need no extra, and the others' errors; a line for each. Errors: Broken."""
    done = [there.call("-c", WEIGHT).strip()]
    for words in BASE:
        there.mark(*words)
        done.append(f"mark {' '.join(words)}")
    there.call("-c", "import mark.live.processes.agent, mark.live.processes.cloud_gateway")
    for words, extra in (
        (("simulate", "--trace", "load.csv.gz"), "replay"),
        (("up",), "local"),
        (("synth",), "infra"),
    ):
        there.mark(*words, refused=f"pip install 'mark-serving[{extra}]'")
    _write_model(there)
    there.mark("profile", "--target", "own/mean.py:Mean", "--model", "mean", "--seconds", "0.5")
    (there.folder / "rollout.yaml").write_text(ROLLOUT, encoding="utf-8")
    for words in (("try",), ("destroy", "--yes")):
        there.mark(*words, "--config", "rollout.yaml", refused="Unable to locate credentials")
    return [
        *done,
        "a gateway",
        there.call("-c", AGENT).strip(),
        "mark simulate, up and synth say which extra they need",
        "mark init, mark profile",
        "mark try and mark destroy, up to their first call to AWS",
    ]


def try_alone(there: Installation) -> list[str]:
    """Everything that the extra `local` is enough for; a line for each. Errors: Broken."""
    done = [_imports(there, "mark", OF_EXTRAS)]
    for words in REPLAYS:
        there.mark(*words)
        done.append(f"mark {' '.join(words)}")
    _write_model(there)
    done += _serves(there)
    there.call(*BUNDLES)
    there.call(*WHEEL)
    if not list((there.folder / "wheel").glob("mark_serving-*.whl")):
        raise Broken("mark.infra.wheel made no wheel")
    return [*done, "bundles of functions, its own wheel"]


def try_rollout(there: Installation) -> list[str]:
    """What needs the extra `infra`: templates, and a deploy up to its first call to AWS. Errors: Broken."""
    if which("node") is None:
        return ["NOT TRIED: mark synth and mark deploy, which need Node.js"]
    done = [_imports(there, "mark.infra", OF_EXTRAS - OF_INFRA)]
    _write_model(there)
    (there.folder / "rollout.yaml").write_text(ROLLOUT, encoding="utf-8")
    config = ("--config", "rollout.yaml")
    (there.folder / "bare.yaml").write_text(SERVICE, encoding="utf-8")
    there.mark("synth", "--config", "bare.yaml", refused="rollout.image is missing")
    there.call(*BUNDLES)
    there.mark("synth", "--trial", *config, "--out", "stacks")
    if not list((there.folder / "stacks").glob("*.template.json")):
        raise Broken("mark synth wrote no template")
    there.mark("deploy", "--trial", "--yes", *config, refused="Unable to locate credentials")
    return [*done, "mark synth --trial", "mark deploy --trial, up to its first call to AWS"]


def _imports(there: Installation, package: str, may_lack: set[str]) -> str:
    """Import every module; Broken where one lacks what neither the wheel asks for nor an extra brings."""
    found = json.loads(there.call("-P", "-c", IMPORTS, package))
    lacking = {name: modules for name, modules in found["lacking"].items() if name not in may_lack}
    if lacking:
        raise Broken(f"dependencies that the wheel does not ask for: {lacking}")
    return f"{found['modules']} modules"


def _write_model(there: Installation) -> None:
    """A model of one's own with its three files, made by `mark init`."""
    (there.folder / "own").mkdir()
    (there.folder / "own" / "mean.py").write_text(MODEL, encoding="utf-8")
    there.mark("init", "own/mean.py:Mean", "--slo-ms", "300", "--seconds", "0.5")


def _serves(there: Installation) -> list[str]:
    """A service with that model and an emulated one answers, and leaves nothing up."""
    (there.folder / "mark.yaml").write_text(SERVICE, encoding="utf-8")
    there.mark("up", "--detach", *CONFIG)
    body = {"inputs": [{"name": "row", "datatype": "FP32", "shape": [1, 4], "data": ROW}]}
    url = f"{there.gateway()}/v2/models/mean/infer"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"x-mark-deadline-ms": "5000"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - on loopback
        answer = json.load(reply)["outputs"][0]["data"]
    if answer != [MEAN]:
        raise Broken(f"the mean of {ROW} is not {answer}")
    there.mark("load", "--model", "inception-v3", "--rate", "5", "--duration", "5", "--json", *CONFIG)
    there.mark("status", "--json", *CONFIG)
    there.mark("down", *CONFIG)
    there.mark("status", *CONFIG, refused="mark up")
    return ["mark up of a model of one's own and an emulated one, a request, load, status, mark down"]
