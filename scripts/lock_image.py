"""Locks what the nodes' image installs: a version of each package, and its wheels' hashes for either processor.

python -m scripts.lock_image        # make lock; with the Python of the image
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from mark.plugins.packages import WHEELS, for_instances

HOUSE = Path(__file__).parents[1]
LOCK = HOUSE / "infra" / "image" / "requirements.txt"
EXTRAS = ("replay", "otel", "grpc")
"""Of the image's target `service`; what `models` adds comes from an index that whoever builds it names."""
INSTALL = "-m pip install -q --isolated --index-url https://pypi.org/simple --dry-run --report - --target out"


def requirements() -> list[str]:
    """What pyproject.toml asks for there."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]


def locked(kind: str) -> dict[str, str]:
    """SHA-256 by `name==version`, as pip resolves for a kind of processor; nothing is installed."""
    command = [sys.executable, *INSTALL.split(), *for_instances(kind), *requirements()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 - what pyproject.toml names
    return {
        f"{package['metadata']['name']}=={package['metadata']['version']}".lower(): digest
        for package in json.loads(done.stdout)["install"]
        for digest in [package["download_info"]["archive_info"]["hashes"]["sha256"]]
    }


def main() -> None:
    """Write the lock."""
    kinds = [locked(kind) for kind in WHEELS]
    lines = (
        " ".join([name, *sorted({f"--hash=sha256:{kind[name]}" for kind in kinds})]) for name in sorted(kinds[0])
    )
    LOCK.write_text("\n".join(["# Made by `make lock`.", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
