"""Bundles: the same bytes each time, all that a handler needs and no more, within Lambda's limits."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from mark.aws.resources import RUNTIME
from mark.domain.errors import Misconfigured
from mark.infra.bundles import build as build_lambda
from mark.infra.bundles import libraries
from mark.infra.bundles.build import FunctionBundle, build, main
from mark.infra.bundles.code import code_of
from mark.infra.bundles.libraries import BuildTarget, files_of, fits, needed, target_of

HERE = BuildTarget(python=(sys.version_info.major, sys.version_info.minor), glibc=(2, 40))
"""Some Linux with this Python: what is installed can be taken as it is, so that nothing is fetched."""
BROUGHT = ("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six", "jmespath")
"""What a runtime has in place of what bundles leave out."""


def unpacked(bundle: FunctionBundle, folder: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(bundle.data)) as archive:
        archive.extractall(folder / "task")
    return folder / "task"


def runtime(folder: Path) -> Path:
    """boto3 and what it needs, and nothing else of this environment."""
    place = folder / "runtime"
    place.mkdir()
    for name in BROUGHT:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (place / source.name).symlink_to(source)
    return place


def run(code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    """In a Python that knows nothing but the standard library and these folders."""
    text = f"import sys; sys.path += {[str(folder) for folder in folders]!r}; {code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=False)  # noqa: S603


def test_a_bundle_is_small_reproducible_and_enough(tmp_path: Path) -> None:
    """It answers as the source does: a message that says nothing needs no AWS."""
    bundle = build("interruption", target_of(RUNTIME))
    assert build("interruption", target_of(RUNTIME)).data == bundle.data
    assert len(bundle.data) < 2 * 1024 * 1024
    record = "{'messageId': 'm0', 'body': '{', 'eventSource': 'aws:sqs'}"
    fields = "function_name='f', memory_limit_in_mb=1, invoked_function_arn='a', aws_request_id='r'"
    context = f"type('Context', (), dict({fields}))()"
    load = "from mark.lambda_handlers.interruption import handler; print('numpy' in sys.modules)"
    answer = f"print(handler({{'Records': [{record}]}}, {context}))"
    done = run(f"{load}; {answer}", unpacked(bundle, tmp_path), runtime(tmp_path))
    said = done.stdout.splitlines()
    assert (said[0], said[-1]) == ("False", "{'batchItemFailures': [{'itemIdentifier': 'm0'}]}"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["infer", "report"])
def test_large_ones_fit_are_reproducible_and_enough(name: str, tmp_path: Path) -> None:
    bundle = build(name, HERE)
    assert build(name, HERE).data == bundle.data
    module = (
        "mark.lambda_handlers.mailing, mark.report.mail.plots"
        if name == "report"
        else "mark.lambda_handlers.infer"
    )
    code = f"import {module}; print({{'numba', 'scipy', 'torch', 'moto'}} & sys.modules.keys())"
    done = run(code, unpacked(bundle, tmp_path), runtime(tmp_path))
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_what_the_report_needs_is_little() -> None:
    """No planner, no simulator's engine: their libraries alone are more than Lambda takes."""
    code = code_of("mark.lambda_handlers.report")
    assert "mark/report/templates/mail.html.j2" in code.files
    assert not {"numba", "scipy", "torch", "pulp", "moto", "typer"} & code.libraries
    assert not [
        name
        for name in code.files
        if name.startswith(("mark/cli/", "mark/live/", "mark/emulator/", "mark/serving/"))
    ]


def test_libraries_bring_what_they_require_but_not_what_lambda_has() -> None:
    found = needed({"aws_lambda_powertools", "boto3"}, HERE)
    assert set(found) == {"aws-lambda-powertools", "jmespath", "typing-extensions"}
    names = files_of(found.values(), HERE)
    assert "aws_lambda_powertools/__init__.py" in names
    assert not [name for name in names if name.endswith((".pyc", "/RECORD")) or name.startswith("..")]


def test_a_wheel_for_another_python_or_a_newer_c_library_does_not_fit() -> None:
    numpy = distribution("numpy")
    assert fits(numpy, HERE)
    assert not fits(numpy, BuildTarget(python=HERE.python, glibc=(2, 16)))
    assert not fits(numpy, BuildTarget(python=(HERE.python[0], HERE.python[1] + 1), glibc=(2, 40)))
    assert not fits(numpy, BuildTarget(python=HERE.python, glibc=(2, 40), machine="aarch64"))
    assert fits(distribution("jmespath"), target_of("python3.13", "aarch64"))


def test_a_model_goes_into_infer_with_its_files() -> None:
    code = code_of("mark.lambda_handlers.infer", models=("mark.models.digits",))
    assert {"mark/models/digits/weights.npz", "mark/models/digits/__init__.py"} <= code.files.keys()
    assert not [name for name in code.files if name.endswith(".pyc")]
    assert not [name for name in code_of("mark.lambda_handlers.infer").files if name.startswith("mark/models/")]


def test_a_model_of_ones_own_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text("import numpy\nfrom my_models.layers import Layer\n")
    (package / "layers.py").write_text("import orjson\nclass Layer: pass\n")
    (package / "weights.bin").write_bytes(b"w")
    (tmp_path / "alone.py").write_text("import numpy\n")
    monkeypatch.chdir(tmp_path)

    code = code_of("mark.lambda_handlers.infer", models=["my_models.mine", "alone"])
    own = {name for name, path in code.files.items() if path.is_relative_to(tmp_path)}
    assert own == {
        *(f"my_models/{name}" for name in ("__init__.py", "mine.py", "layers.py", "weights.bin")),
        "alone.py",
    }
    assert {"numpy", "orjson"} <= code.libraries
    assert not {"my_models", "alone", "mark"} & code.libraries


def test_one_command_writes_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "--to", str(tmp_path / "deep" / "er")]) == 0
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["warm.zip"]
    assert "MiB zipped" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "deep" / "er" / "warm.zip") as archive:
        archive.extractall(tmp_path / "task")
    done = run("import mark.lambda_handlers.warm", tmp_path / "task", runtime(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["wram"], "did you mean 'warm'?"),
        (["infer", "--model", "mark.models.nobody"], "no module mark.models.nobody"),
        (["infer", "--model", "mark.models.digits"], "make it an image"),  # torch
    ],
)
def test_what_cannot_be_built_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--to", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_what_is_too_large_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_lambda, "MOST_UNZIPPED", 1024 * 1024)
    with pytest.raises(Misconfigured, match=r"Lambda unpacks.*make it an image"):
        build("warm", HERE)
    monkeypatch.setattr(build_lambda, "MOST_UNZIPPED", 1 << 30)
    monkeypatch.setattr(build_lambda, "MOST_ZIPPED", 1024)
    with pytest.raises(Misconfigured, match="an image"):
        build("warm", HERE)


def test_versions_that_no_wheel_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of a registry here."""
    failed = subprocess.CompletedProcess([], 1, "", "a warning\nERROR: No matching distribution found\n")
    monkeypatch.setattr(libraries.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(Misconfigured, match=r"numpy==.*No matching distribution"):
        files_of([distribution("numpy")], BuildTarget(python=(3, 9), glibc=(2, 17)))
