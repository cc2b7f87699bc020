"""The Dockerfiles name what there is; building them takes a registry and minutes, so nothing is built here."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mark.aws.resources import RUNTIME, handler_of
from mark.deployment.images import FOLDER, FOR_FUNCTIONS, FOR_PROCESSES, LAMBDA_TAKES
from mark.extras import EXTRAS
from mark.infra.user_data import SCRATCH
from mark.live.processes import cloud_controller
from mark.plugins.load import forecaster_names
from scripts.lock_image import requirements

DOCS = FOLDER.parents[2] / "docs"
BUILD_ARG = re.compile(r"--build-arg (\w+)=")


def told(dockerfile: str, word: str) -> list[str]:
    """What stands behind an instruction."""
    text = (FOLDER / dockerfile).read_text(encoding="utf-8")
    return re.findall(rf"^{word} (.*)$", text, flags=re.MULTILINE)


def test_functions_have_the_handler_and_the_python_of_the_zips() -> None:
    assert json.loads(told(FOR_FUNCTIONS, "CMD")[0]) == [handler_of("infer")]
    module, _, function = handler_of("infer").rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
    assert told(FOR_FUNCTIONS, "FROM")[0].rpartition(":")[2] == RUNTIME.removeprefix("python")


def test_processes_are_started_as_the_stacks_do() -> None:
    assert json.loads(told(FOR_PROCESSES, "CMD")[0]) == ["python", "-m", cloud_controller.__name__]


def test_compiled_code_is_kept_where_a_process_may_write() -> None:
    """All else is read-only there, and a module with code that numba keeps is not imported without a place."""
    places = {
        name: dict(one.split("=", 1) for line in told(name, "ENV") for one in line.split()).get("NUMBA_CACHE_DIR")
        for name in (FOR_PROCESSES, FOR_FUNCTIONS)
    }
    assert places == {FOR_PROCESSES: f"{SCRATCH}/numba", FOR_FUNCTIONS: "/tmp/numba"}  # noqa: S108 - Lambda's


@pytest.mark.parametrize("dockerfile", [FOR_PROCESSES, FOR_FUNCTIONS])
def test_torch_comes_without_cuda_unless_another_index_is_named(dockerfile: str) -> None:
    arguments = dict(line.partition("=")[::2] for line in told(dockerfile, "ARG"))
    assert arguments["MARK"] == ""
    assert arguments["TORCH_INDEX"].endswith("/cpu")
    *_, install = re.findall(r"pip install (.*)", (FOLDER / dockerfile).read_text(encoding="utf-8"))
    assert '--extra-index-url "$TORCH_INDEX"' in install


def test_the_target_without_torch_is_the_other_but_for_the_extra_models() -> None:
    text = (FOLDER / FOR_PROCESSES).read_text(encoding="utf-8")
    base, service, models = text.split("\nFROM ")[1:]
    assert "[models]" not in base
    assert "torch" not in base + service.partition("#")[0]
    copies = "COPY --chown=mark . .\nUSER mark\n"
    assert service.startswith(f"base AS service\n{copies}")
    assert models.endswith(copies)
    [extra] = re.findall(r"\$\(python -c '(.*)'\)\n", models, flags=re.DOTALL)
    done = subprocess.run(  # noqa: S603 - our own line
        [sys.executable, "-c", extra.replace("\\\n", "")], capture_output=True, text=True, check=True
    )
    assert {re.split(r"[<>=]", word)[0] for word in done.stdout.split()} == {"torch", "scikit-learn"}


LACKING = ("torch", "sklearn", "onnx", "onnxruntime", "aws_cdk", "ray")
"""Packages that the target `service` is made without, beside those of the extra `local`."""
STARTS = """
import importlib, sys
from pathlib import Path

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

LACKING = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Lacking())
for process in ("agent", "cloud_gateway", "cloud_controller", "trainer", "replayer"):
    importlib.import_module(f"mark.live.processes.{process}")
from mark.domain.demand import Demand
from mark.plugins.load import build_forecaster
from mark.ports import ForecasterSetup
history = Demand(end_at=3600.0, mean_rps=(5.0,) * 60, max_rps=(8.0,) * 60)
for name in sys.argv[2].split(","):
    build_forecaster(name, ForecasterSetup(history=history, seed=1, cache_dir=Path(sys.argv[3])))
print("started")
"""


def test_every_process_starts_without_torch_and_the_emulator(tmp_path: Path) -> None:
    lacking = {*LACKING, *EXTRAS["local"]}
    names = ",".join(sorted(set(forecaster_names()) - {"oracle", "lstm-vanilla"}))
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", STARTS, ",".join(sorted(lacking)), names, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "started\n", done.stderr


def test_the_page_names_arguments_and_files_that_there_are() -> None:
    text = (DOCS / "deploy.md").read_text(encoding="utf-8")
    known = {line.partition("=")[0] for line in told(FOR_PROCESSES, "ARG")}
    assert set(BUILD_ARG.findall(text)) <= known
    files = re.findall(r"docker (?:buildx )?build -f \$MARK/(\S+)(.*)", text)
    assert files
    for file, flags in files:
        assert (FOLDER.parents[1] / file).is_file()
        assert all(flag in flags for flag in LAMBDA_TAKES) == (Path(file).name == FOR_FUNCTIONS)


def test_the_lock_has_what_pyproject_asks_for() -> None:
    lines = (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    locked = {
        canonicalize_name(name): version for name, _, version in (x.split()[0].partition("==") for x in lines)
    }
    for asked in map(Requirement, requirements()):
        assert asked.specifier.contains(locked[canonicalize_name(asked.name)]), asked
    assert all(" --hash=sha256:" in line for line in lines)
