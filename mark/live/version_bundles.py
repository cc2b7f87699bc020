"""Bundle of a version in the service's bucket: a model's files, as each instance unpacks them before it starts.

A bundle is named by its version, the hash of what it holds: nothing ever takes its place, and two models with the
same files share one. A model that is installed, or a server of its own, has an empty one.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mark.aws.names import ON_INSTANCES, VERSIONS
from mark.aws.objects import holds_object, put_file
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured
from mark.live.model_files import keep_version, loaded_from, version_of
from mark.service_spec import BackendSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBundle:
    """A version and its bundle, which is packed when it is asked for."""

    #: The backend on this machine.
    source: BackendSpec
    version: str

    @property
    def key(self) -> str:
        """The bundle's name in the bucket."""
        return f"{VERSIONS}/{self.version}.tar.gz"

    @property
    def backend(self) -> BackendSpec:
        """The backend as instances load it."""
        return loaded_from(PurePosixPath(ON_INSTANCES) / self.version, self.source)

    @contextmanager
    def kept(self) -> Iterator[BackendSpec]:
        """The backend of a copy that nobody edits. Misconfigured where its files are another version by now."""
        with TemporaryDirectory(prefix="mark-version-") as folder:
            yield self.keep(Path(folder))

    def keep(self, folder: Path) -> BackendSpec:
        """The backend of a copy below `folder`. Errors as of `kept`."""
        version, backend = keep_version(self.source, folder)
        if version != self.version:
            raise Misconfigured(
                f"the files of {self.source.target} were edited meanwhile; try again when they are written"
            )
        return backend

    def write(self, path: Path) -> None:
        """Pack it: the same files give the same bytes. Errors as of `kept`."""
        with self.kept() as kept:
            root = Path(kept.folder) if kept.folder != self.source.folder else None
            pack(root, path)


def bundle_of(backend: BackendSpec) -> VersionBundle:
    """The version that a backend is now. Misconfigured where it has no files that could be one."""
    return VersionBundle(source=backend, version=version_of(backend))


def upload(aws: Aws, bucket: str, bundle: VersionBundle) -> bool:
    """Put a bundle that is not there; whether it was put. Errors as of `VersionBundle.kept`, and AWS's own."""
    if holds_object(aws, bucket, bundle.key):
        return False
    with TemporaryDirectory(prefix="mark-bundle-") as folder:
        path = Path(folder) / "bundle.tar.gz"
        bundle.write(path)
        put_file(aws, bucket, bundle.key, path)
    return True


def pack(root: Path | None, path: Path) -> None:
    """Pack all files below `root`, without their times, owners and modes; no root: none."""
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as packed,
    ):
        if root is None:
            return
        for source in sorted(root.rglob("*")):
            if source.is_file():
                entry = tarfile.TarInfo(source.relative_to(root).as_posix())
                entry.size = source.stat().st_size
                with source.open("rb") as content:
                    packed.addfile(entry, content)
