"""Commands that call a model in their own process run once more where it has packages of its own: with these."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mark.config.settings import packages_dir
from mark.offline.own_model.sources import source_of_target
from mark.offline.own_model.targets import TriedModel
from mark.plugins.packages import REQUIREMENTS, install, is_installed, kind_here, requirements_of
from mark.report.terminal import note


def with_packages_of_target(target: str) -> None:
    """Go on with the packages of what `mark init` is given: a model's file, or a folder. Errors: Misconfigured."""
    place = Path(target).expanduser()
    folder = place if place.is_dir() else source_of_target(target).resolve().parent
    _go_on_with(target, folder / REQUIREMENTS)


def with_packages_of(tried: TriedModel) -> None:
    """Go on with the packages of this model. Errors: Misconfigured."""
    if tried.kind == "python":
        beside = requirements_of(tried.target, tried.folder)
        if beside is not None:
            _go_on_with(tried.name, beside)


def _go_on_with(name: str, requirements: Path) -> None:
    """Nothing where there are none, or this process has them already; else this process begins anew."""
    if not requirements.is_file():
        return
    if not is_installed(requirements, packages_dir()):
        note(f"{name}: installing {requirements}")
    packages = str((install(name, requirements, packages_dir()) / kind_here()).absolute())
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if searched[0] == packages:
        return
    path = os.pathsep.join((packages, *(one for one in searched if one)))
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONPATH": path})  # noqa: S606
