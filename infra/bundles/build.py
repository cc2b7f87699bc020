"""Bundles of the Lambda handlers: one zip each, with the code and the libraries that it needs and no more.

    python -P -m mark.infra.bundles.build [NAME ...] [--to dist/lambda] [--model MODULE]

The same sources and libraries give the same bytes. A model of one's own goes into `infer` with --model; one that
needs more than Lambda takes goes into an image instead.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mark.aws.functions.management import LONG_AGO
from mark.aws.names import HANDLERS
from mark.aws.resources import RUNTIME
from mark.domain.errors import Misconfigured, unknown
from mark.infra.bundles.code import code_of
from mark.infra.bundles.libraries import (
    HERE,
    RUNTIMES,
    BuildTarget,
    files_of,
    needed,
    size_of,
    target_of,
    versions,
)

NAMES = ("infer", *HANDLERS)
MOST_ZIPPED, MOST_UNZIPPED = 50 * 1024 * 1024, 250 * 1024 * 1024
"""Lambda takes no larger zip by itself, and unpacks no more (Lambda's guide, "Lambda quotas")."""
MEMBER_MODE = 0o100644 << 16
UNIX = 3
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBundle:
    """A handler's zip. `unzipped` is in bytes, `libraries` for people."""

    name: str
    data: bytes
    unzipped: int
    libraries: str

    @property
    def digest(self) -> str:
        """SHA-256, in hex."""
        return hashlib.sha256(self.data).hexdigest()


def build(name: str, target: BuildTarget, *, models: Sequence[str] = ()) -> FunctionBundle:
    """The bundle of a handler; Misconfigured where it is larger than Lambda takes."""
    if name not in NAMES:
        raise unknown("handler", name, NAMES)
    code = code_of(f"mark.lambda_handlers.{name}", models=models if name == "infer" else ())
    libraries = needed(code.libraries, target)
    sizes = {library: size_of(item) for library, item in libraries.items()}
    if max(sizes.values(), default=0) > MOST_UNZIPPED:  # nothing so large is fetched
        raise _too_large(name, sizes)
    files = files_of(libraries.values(), target) | {key: path.read_bytes() for key, path in code.files.items()}
    unzipped = sum(map(len, files.values()))
    if unzipped > MOST_UNZIPPED:
        raise _too_large(name, sizes)
    data = packed(files)
    if len(data) > MOST_ZIPPED:
        raise Misconfigured(
            f"{name} has {len(data) / MIB:.0f} MiB, Lambda takes {MOST_ZIPPED / MIB:.0f}: an image?"
        )
    return FunctionBundle(name=name, data=data, unzipped=unzipped, libraries=versions(libraries))


def _too_large(name: str, sizes: Mapping[str, int]) -> Misconfigured:
    largest = sorted(sizes, key=lambda library: -sizes[library])[:3]
    parts = ", ".join(f"{library} {sizes[library] / MIB:.0f} MiB" for library in largest)
    return Misconfigured(
        f"{name} is larger than the {MOST_UNZIPPED / MIB:.0f} MiB that Lambda unpacks ({parts}): make it an image "
        "(infra/image/infer.Dockerfile, rollout.functions.infer_image)"
    )


def packed(files: Mapping[str, bytes]) -> bytes:
    """A zip that depends on names and contents alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name, LONG_AGO)
            member.external_attr, member.create_system = MEMBER_MODE, UNIX
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, files[name])
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -P -m mark.infra.bundles.build", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all when left out")
    parser.add_argument("--to", type=Path, default=Path("dist/lambda"), metavar="FOLDER")
    parser.add_argument("--model", action="append", default=[], metavar="MODULE", help="goes into infer")
    parser.add_argument("--runtime", default=RUNTIME, choices=(*RUNTIMES, HERE))
    parser.add_argument("--architecture", default="x86_64", choices=("x86_64", "aarch64"))
    asked = parser.parse_args(arguments)
    try:
        target = target_of(asked.runtime, asked.architecture)
        asked.to.mkdir(parents=True, exist_ok=True)
        for name in asked.names or NAMES:
            bundle = build(name, target, models=asked.model)
            path = asked.to / f"{name}.zip"
            path.write_bytes(bundle.data)
            sizes = f"{len(bundle.data) / MIB:6.2f} MiB zipped, {bundle.unzipped / MIB:6.2f} MiB unpacked"
            sys.stdout.write(f"{path}  {sizes}  sha256 {bundle.digest[:16]}  {bundle.libraries}\n")
            sys.stdout.flush()
    except (Misconfigured, OSError) as error:
        sys.stderr.write(f"mark.infra.bundles.build: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
