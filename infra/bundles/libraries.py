"""The libraries of a function, in the versions that this environment has, as files that Lambda's runtime can load.

What is installed here is taken where its wheel fits the runtime; of other wheels (another Python, another
architecture, a newer C library) pip fetches the one of the same version that does.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, parse_tag
from packaging.utils import canonicalize_name

from mark.domain.errors import Misconfigured

RUNTIMES = {"python3.11": (2, 26), "python3.12": (2, 34), "python3.13": (2, 34)}
"""Lambda's runtimes, and their C library's version: Amazon Linux 2, then 2023 (Lambda's guide, "Runtimes")."""
HERE = "here"
"""This machine's own Python and C library: what an emulated Lambda runs functions with."""
BROUGHT = frozenset({"boto3", "botocore", "s3transfer"})
"""What the runtimes bring along; 25 MB that need not be uploaded."""
LEFT_OUT = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"})
SUFFIXES_LEFT_OUT = frozenset({".a", ".c", ".h", ".lib", ".pxd", ".pyc", ".pyi", ".pyx"})
"""Nobody runs these."""
TESTS = "tests"
LATE = 99
"""AWS keeps its runtimes patched: markers for early patch releases do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTarget:
    """The machine that runs the function: a Python, a C library, an architecture as Linux names it."""

    python: tuple[int, int]
    glibc: tuple[int, int]
    machine: str = "x86_64"

    @property
    def platforms(self) -> list[str]:
        """Platforms of wheels that it can load, the newest first."""
        numbered = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc[1], 16, -1)]
        return [*numbered, f"manylinux2014_{self.machine}"]

    @property
    def tags(self) -> frozenset[Tag]:
        """Tags of wheels that it can load."""
        interpreter = f"cp{self.python[0]}{self.python[1]}"
        own = cpython_tags(self.python, abis=[interpreter], platforms=self.platforms)
        return frozenset(own) | frozenset(compatible_tags(self.python, interpreter, self.platforms))


def target_of(runtime: str, machine: str = "x86_64") -> BuildTarget:
    """The target that a runtime of Lambda is, or this machine (`here`). Errors: Misconfigured."""
    if runtime == HERE:
        _, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 2.17").partition(" ")
        glibc_major, glibc_minor, *_ = map(int, version.split("."))
        return BuildTarget(
            python=sys.version_info[:2], glibc=(glibc_major, glibc_minor), machine=platform.machine() or machine
        )
    if runtime not in RUNTIMES:
        raise Misconfigured(f"unknown runtime {runtime!r}; known: {', '.join((*RUNTIMES, HERE))}")
    major, minor = runtime.removeprefix("python").split(".")
    return BuildTarget(python=(int(major), int(minor)), glibc=RUNTIMES[runtime], machine=machine)


@cache
def _packages() -> Mapping[str, list[str]]:
    """Distributions by top-level module. Read once: that takes a second, and each function's bundle asks."""
    return packages_distributions()


def needed(modules: Iterable[str], target: BuildTarget) -> dict[str, Distribution]:
    """The distributions of these top-level modules and of all that they require there, by name."""
    of_module = _packages()
    found: dict[str, Distribution] = {}
    waiting = sorted({name for module in modules for name in of_module.get(module, [module])})
    marked = {
        "python_version": ".".join(map(str, target.python)),
        "python_full_version": ".".join(map(str, (*target.python, LATE))),
        "platform_machine": target.machine,
        "extra": "",
    }
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found or name in BROUGHT:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError as error:
            raise Misconfigured(f"{name} is not installed: install it with pip beside MArk") from error
        required = map(Requirement, found[name].requires or ())
        waiting += [item.name for item in required if item.marker is None or item.marker.evaluate(marked)]
    return dict(sorted(found.items()))


def files_of(found: Iterable[Distribution], target: BuildTarget) -> dict[str, bytes]:
    """All files of these distributions that the function may load, by name."""
    here: list[Distribution] = []
    elsewhere: list[Distribution] = []
    for item in found:
        (here if fits(item, target) else elsewhere).append(item)
    files = {name: data for item in here for name, data in _installed(item)}
    return files | (_fetched(elsewhere, target) if elsewhere else {})


def fits(item: Distribution, target: BuildTarget) -> bool:
    """True where the target can load what is installed here."""
    lines = (item.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
    return any(parse_tag(tag) & target.tags for tag in tags)


def size_of(item: Distribution) -> int:
    """Size of what is installed here of it, in bytes."""
    places = (Path(str(file.locate())) for file in item.files or () if _is_wanted(PurePosixPath(file.as_posix())))
    return sum(place.stat().st_size for place in places if place.is_file())


def _installed(item: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in item.files or ():
        place = Path(str(file.locate()))
        if _is_wanted(PurePosixPath(file.as_posix())) and place.is_file():
            yield file.as_posix(), place.read_bytes()


def _fetched(items: list[Distribution], target: BuildTarget) -> dict[str, bytes]:
    """The files that pip finds of exactly these versions."""
    asked = [f"{item.name}=={item.version}" for item in items]
    interpreter = f"cp{target.python[0]}{target.python[1]}"
    options = ["--implementation", "cp", "--python-version", ".".join(map(str, target.python))]
    options += [word for abi in (interpreter, "abi3", "none") for word in ("--abi", abi)]
    options += [word for platform in target.platforms for word in ("--platform", platform)]
    with tempfile.TemporaryDirectory(prefix="mark-wheels-") as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
        done = subprocess.run([*command, *options, *asked], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise Misconfigured(f"pip finds no wheel of {', '.join(asked)} for {interpreter}: {reason}")
        return _unpacked(sorted(Path(folder).glob("*.whl")))


def _unpacked(wheels: Iterable[Path]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith("/") and _is_wanted(PurePosixPath(name)):
                    files[name] = archive.read(name)
    return files


def _is_wanted(name: PurePosixPath) -> bool:
    """True where a running function may need it: no scripts, tests, sources or notes of an installer."""
    if name.is_absolute() or ".." in name.parts or TESTS in name.parts or ".data" in name.parts[0]:
        return False
    return name.name not in LEFT_OUT and name.suffix not in SUFFIXES_LEFT_OUT


def versions(found: Mapping[str, Distribution]) -> str:
    """Names and versions, for people."""
    return ", ".join(f"{name} {item.version}" for name, item in found.items())
