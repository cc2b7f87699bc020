"""Tries an installed MArk from an empty folder: nothing that it runs may need a clone.

    ENVIRONMENT/bin/python scripts/try_wheel.py

The environment is the one that the wheel is installed in. The script imports nothing of MArk's, so that the folder
of the sources stays out of sight.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which

TIMEOUT_S = 300.0
MARK = ("-P", "-c", "from mark.cli.main import main; main()")
"""`mark` without its script: `-P` keeps the working directory off the path."""
SERVICE = """
service:
  port: 0
  status_port: 0
  gateways: 1
  controllers: 1
  serve: [{model: inception-v3, expected_rps: 10, offerings: {types: [c5.large, c5.xlarge]}}]
"""
ROLLOUT = """
service:
  serve:
    - model: digits
      backend: {kind: python, target: "models.digits:Digits"}
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
BUNDLES = ("-P", "-m", "infra.bundles.build", "warm", "interruption", "probe")
WHEEL = ("-P", "-m", "infra.wheel", "--to", "wheel")


class Broken(Exception):
    """A command failed, or did not do what it is for."""


def try_installation(python: str, folder: Path) -> list[str]:
    """Run every command in `folder` with that Python; a line for each. Errors: Broken."""
    done = [_run(python, folder, *MARK, *words) for words in REPLAYS]
    done += [*_serves(python, folder), _run(python, folder, *BUNDLES), _run(python, folder, *WHEEL)]
    if not list((folder / "wheel").glob("mark_serving-*.whl")):
        raise Broken("infra.wheel made no wheel")
    if which("node") is None or find_spec("aws_cdk") is None or find_spec("torch") is None:
        return [*done, "no templates: they need Node.js and the extras infra and models"]
    (folder / "rollout.yaml").write_text(ROLLOUT, encoding="utf-8")
    done.append(_run(python, folder, *MARK, "synth", "--trial", "--config", "rollout.yaml", "--out", "stacks"))
    return done


def _serves(python: str, folder: Path) -> list[str]:
    """A service that answers requests and leaves."""
    (folder / "mark.yaml").write_text(SERVICE, encoding="utf-8")
    config = ("--config", "mark.yaml")
    done = [_run(python, folder, *MARK, "up", "--detach", *config)]
    try:
        load = ("load", "--rate", "5", "--duration", "5", "--json", *config)
        done.append(_run(python, folder, *MARK, *load))
        done.append(_run(python, folder, *MARK, "status", "--json", *config))
    finally:
        done.append(_run(python, folder, *MARK, "down", *config))
    return done


def _run(python: str, folder: Path, *words: str) -> str:
    """A command's words, once it has ended well and, with `--json`, has printed a document."""
    name = " ".join(words[len(MARK) :] if words[: len(MARK)] == MARK else words[1:])
    without = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(  # noqa: S603 - our own code
        [python, *words], cwd=folder, env=without, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise Broken(f"{name}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    if "--json" in words:
        json.loads(done.stdout)
    return name


def main(_: Sequence[str]) -> int:
    """Try the installation of the running Python; the exit status."""
    with tempfile.TemporaryDirectory(prefix="mark-wheel-") as folder:
        try:
            done = try_installation(sys.executable, Path(folder))
        except Broken as error:
            sys.stderr.write(f"{error}\n")
            return 1
    sys.stdout.write("\n".join([*done, "the wheel needs no clone", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
