"""Wheels of one module, made on the spot: installing them needs neither a network nor an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, code: str, *, needs: str = "") -> Path:
    """A wheel of the module `name`. needs: a requirement of its own."""
    path, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: mark\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        for file, text in files.items():
            packed.writestr(file, text)
    return path


def with_requirements(folder: Path, version: str, code: str) -> None:
    """Have a model in this folder require `shade` of that version, whose code is beside it."""
    wheel = make_wheel(folder, "shade", version, code)
    (folder / "requirements.txt").write_text(f"./{wheel.name}\n")
