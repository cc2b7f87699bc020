"""MArk's own wheel, for images: `python -P -m mark.infra.wheel` puts it into the working directory.

In a clone pip makes it of the sources. An installation packs its own files again, as a wheel has them ("Binary
distribution format", packaging.python.org), so that neither a clone nor an index is needed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import mark
from mark.domain.errors import Misconfigured
from mark.infra.bundles.build import packed

NAME = "mark-serving"
HOUSE = Path(mark.__file__).parents[1]
"""Folder of MArk's packages: the clone, or site-packages."""
OF_AN_INSTALLER = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"})
RECORD = "RECORD"


def put_wheel(folder: Path) -> Path:
    """Put the wheel of this MArk into a folder; its path. Misconfigured where none can be made."""
    folder.mkdir(parents=True, exist_ok=True)
    return _built(folder) if (HOUSE / "pyproject.toml").is_file() else _repacked(folder)


def _built(folder: Path) -> Path:
    """The wheel that pip makes of the sources."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(HOUSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own sources
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Misconfigured(f"pip makes no wheel of {HOUSE}: {reason}")
    return max(folder.glob("mark_serving-*.whl"), key=lambda path: path.stat().st_mtime_ns)


def _repacked(folder: Path) -> Path:
    try:
        item = distribution(NAME)
    except PackageNotFoundError as error:
        raise Misconfigured(f"{NAME} is not installed as a package, and {HOUSE} is no clone of it") from error
    path = folder / f"mark_serving-{item.version}-py3-none-any.whl"
    path.write_bytes(packed(with_record(dict(_files(item)), f"mark_serving-{item.version}.dist-info")))
    return path


def _files(item: Distribution) -> Iterator[tuple[str, bytes]]:
    """Files of an installation that were in its wheel, by name there: nothing compiled, no scripts made by pip."""
    for file in item.files or ():
        name = PurePosixPath(file.as_posix())
        if ".." in name.parts or name.is_absolute() or name.suffix == ".pyc":
            continue
        if name.parts[0].endswith(".dist-info") and name.name in OF_AN_INSTALLER:
            continue
        yield str(name), Path(str(file.locate())).read_bytes()


def with_record(files: Mapping[str, bytes], metadata: str) -> dict[str, bytes]:
    """The files and the record of them: name, SHA-256 and size, a line each; its own line has the name alone.

    metadata: folder of the wheel's metadata, in which the record lies.
    """
    lines = [f'"{name}",sha256={_digest(data)},{len(data)}' for name, data in sorted(files.items())]
    record = f"{metadata}/{RECORD}"
    return {**files, record: "\n".join([*lines, f"{record},,", ""]).encode()}


def _digest(data: bytes) -> str:
    """As records have it: URL-safe base 64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the wheel into a folder and print its path; the exit status."""
    parser = argparse.ArgumentParser(prog="python -P -m mark.infra.wheel", description=__doc__)
    parser.add_argument(
        "--to", type=Path, default=Path(), metavar="FOLDER", help="the working directory by default"
    )
    try:
        sys.stdout.write(f"{put_wheel(parser.parse_args(arguments).to)}\n")
    except (Misconfigured, OSError) as error:
        sys.stderr.write(f"mark.infra.wheel: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
