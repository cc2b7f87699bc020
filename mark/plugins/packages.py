"""A model's own packages: what `requirements.txt` beside its file names, installed in a folder of their own.

The folder is named by what the file says, so that models and versions with the same requirements share one. It
holds a part for each kind of machine, as `pip install --target` fills it: files that can be moved, and that need
neither pip nor an index where the model runs. A process that is started with one (`serving/backends/replicas.py`)
imports from it, from Python's own library and from `mark`; of what is installed beside MArk it finds numpy and
orjson alone, which MArk's own code there needs, and those only where the folder has none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.plugins.files import source_of

REQUIREMENTS = "requirements.txt"
NEEDED = ("numpy>=1.26", "orjson>=3.9")
"""What MArk's own code in a model's process imports: a model that brings it has to bring one of these."""
KINDS = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
WHEELS = {"amd64": "x86_64", "arm64": "aarch64"}
INSTANCES_PYTHON = "3.11"
"""Of the image that instances run (infra/image/Dockerfile)."""
GLIBC = range(17, 37)
"""Minor versions of glibc 2 whose wheels run there."""


def kind_here() -> str:
    """The kind of this machine's processors, as folders of packages name it."""
    machine = platform.machine().lower()
    return KINDS.get(machine, machine)


def requirements_of(target: str, folder: Path | None) -> Path | None:
    """The requirements beside the file of a Python model; None where there are none."""
    source = source_of(target.rpartition(":")[0], folder)
    beside = None if source is None else source.resolve().with_name(REQUIREMENTS)
    return beside if beside is not None and beside.is_file() else None


def place_of(requirements: Path, into: Path, *, on_instances: bool = False) -> Path:
    """The folder below `into` of the packages for this machine, or for instances in AWS. Errors: Misconfigured."""
    runs = INSTANCES_PYTHON if on_instances else f"{sys.version_info[0]}.{sys.version_info[1]} {sys.platform}"
    digest = hashlib.sha256(f"{runs}\0{on_instances}\0{NEEDED}\0".encode())
    try:
        text = requirements.read_text(encoding="utf-8")
        digest.update(text.encode())
        for file in _named_files(text, requirements.parent):
            digest.update(file.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"cannot read {requirements}: {error}") from error
    return into / digest.hexdigest()[:16]


def is_installed(requirements: Path, into: Path) -> bool:
    """True where this machine has them. Errors: Misconfigured."""
    return (place_of(requirements, into) / kind_here()).is_dir()


def install(
    name: str, requirements: Path, into: Path, *, kinds: Iterable[str] = (), on_instances: bool = False
) -> Path:
    """Install a model's packages, where they are not there yet; their folder, with a part for each of `kinds`.

    kinds: this machine's where none is named. Errors: Misconfigured, with the model and the requirement.
    """
    place = place_of(requirements, into, on_instances=on_instances)
    for kind in kinds or (kind_here(),):
        if not (place / kind).is_dir():
            _install(name, requirements, place / kind, for_instances(kind) if on_instances else ())
    return place


def for_instances(kind: str) -> tuple[str, ...]:
    """Options by which pip takes wheels for the image of instances, whatever this machine is."""
    wheels = WHEELS[kind]
    platforms = [f"manylinux_2_{minor}_{wheels}" for minor in GLIBC] + [f"manylinux2014_{wheels}"]
    options = ["--only-binary", ":all:", "--python-version", INSTANCES_PYTHON, "--implementation", "cp"]
    return (*options, "--no-compile", *(word for one in platforms for word in ("--platform", one)))


def _install(name: str, requirements: Path, place: Path, options: Iterable[str]) -> None:
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    needed = draft.with_suffix(f"{draft.suffix}.txt")
    words = [*_installer(), "--target", str(draft), "-r", requirements.name, "-c", str(needed), *options]
    try:
        draft.mkdir(parents=True, exist_ok=True)  # pip makes none where nothing is named
        needed.write_text("\n".join(NEEDED), encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - pip, with what the model's owner wrote
            words, cwd=requirements.parent, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise Misconfigured(f"{name}: {requirements} cannot be installed: {_reason(done.stderr, done.stdout)}")
        if not place.is_dir():
            draft.rename(place)
    except OSError as error:
        raise Misconfigured(f"{name}: cannot write its packages to {place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        needed.unlink(missing_ok=True)


def _installer() -> tuple[str, ...]:
    if find_spec("pip") is None:
        raise Misconfigured(
            f"a model has a {REQUIREMENTS}, and this Python has no pip: {sys.executable} -m ensurepip"
        )
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check")
    return (*pip, "--no-warn-script-location", "--no-warn-conflicts")  # with what is installed here it has none


def _reason(*outputs: str) -> str:
    """The requirement that failed, in pip's own words."""
    lines = [
        line.partition("ERROR:")[2].strip() for text in outputs for line in text.splitlines() if "ERROR:" in line
    ]
    telling = ("Cannot install", "No matching distribution", "Invalid requirement", "Could not install")
    found = next((line for word in telling for line in lines if line.startswith(word)), None)
    last = next((text.strip().splitlines()[-1] for text in outputs if text.strip()), "pip said nothing")
    return re.sub(r"\s+", " ", found or (lines or [last])[0])


def _named_files(text: str, folder: Path) -> list[Path]:
    """Files that the requirements name: other requirements, wheels, archives."""
    words = (word for line in text.splitlines() for word in _words(line.partition(" #")[0]))
    return [
        path
        for word in words
        if (path := folder / word.partition("=")[2] if word.startswith("--") else folder / word).is_file()
    ]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
