"""Bundle of a version in the service's bucket: a model's files, as each instance unpacks them before it starts.

A bundle is named by its version, the hash of what it holds: nothing ever takes its place, and two models with the
same files share one. A model that is installed, or a server of its own, has none of its files there. One file more
tells functions how to load the model (`plugins/version_hash.py`).
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mark.aws.names import ON_INSTANCES, VERSIONS
from mark.aws.objects import holds_object, put_file
from mark.aws.session import Aws
from mark.config.settings import packages_dir
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.live.model_files import how_to_load, keep_version, loaded_from, model_files, version_of
from mark.plugins.packages import install, requirements_of
from mark.plugins.version_hash import BACKEND_FILE, PACKAGES
from mark.service_spec import BackendSpec, ServedModel

MOST_IN_FUNCTION_MIB = 480
"""A function has 512 MB for files (Lambda developer guide, ephemeral storage)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBundle:
    """A version and its bundle, which is packed when it is asked for."""

    #: The backend on this machine.
    source: BackendSpec
    version: str
    #: Of the model.
    name: str = ""
    #: Kinds of processors for which packages of the model's own come along (`plugins/packages.py`).
    kinds: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The bundle's name in the bucket."""
        return f"{VERSIONS}/{self.version}.tar.gz"

    @property
    def backend(self) -> BackendSpec:
        """The backend as instances load it."""
        place = PurePosixPath(ON_INSTANCES) / self.version
        packages = str(place / PACKAGES) if self.source.packages else ""
        return replace(loaded_from(place, self.source), packages=packages)

    def packages(self) -> Path | None:
        """The model's own packages for instances, installed here where they are not; None where it has none.

        Errors: Misconfigured.
        """
        folder = Path(self.source.folder) if self.source.folder else None
        requirements = requirements_of(self.source.target, folder) if self.source.packages else None
        if requirements is None:
            return None
        return install(self.name, requirements, packages_dir(), kinds=self.kinds, on_instances=True)

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
            roots = {} if root is None else {PurePosixPath(): root}
            if (packages := self.packages()) is not None:
                roots |= {PurePosixPath(PACKAGES, kind): packages / kind for kind in self.kinds}
            pack(roots, path, self._how_to_load())

    def _how_to_load(self) -> bytes:
        return json_text(asdict(how_to_load(self.source, model_files(self.source)))).encode()

    @property
    def unpacked_bytes(self) -> int:
        """The size of its files, the packages apart."""
        files = model_files(self.source)
        return 0 if files is None else sum((files.root / path).stat().st_size for path in files.files)

    @property
    def instance_bytes(self) -> int:
        """What it takes of an instance's disk, its packages included. Errors: Misconfigured."""
        packages = self.packages()
        files = [] if packages is None else [one for kind in self.kinds for one in (packages / kind).rglob("*")]
        return self.unpacked_bytes + sum(one.stat().st_size for one in files if one.is_file())


def bundle_of(backend: BackendSpec, name: str = "", kinds: tuple[str, ...] = ()) -> VersionBundle:
    """The version that a model's backend is now. Misconfigured where it has no files that could be one."""
    return VersionBundle(source=backend, version=version_of(backend), name=name, kinds=kinds)


def runs_in_function(bundle: VersionBundle) -> bool:
    """True where a function can answer as the version: a Python model whose files it has room for."""
    return bundle.source.kind == "python" and bundle.unpacked_bytes <= MOST_IN_FUNCTION_MIB * 1024**2


def has_function_versions(served: ServedModel, bundle: VersionBundle) -> bool:
    """True where the model's functions answer as the version that a call names."""
    return served.overflow is not None and not served.has_central_queue and runs_in_function(bundle)


def upload(aws: Aws, bucket: str, bundle: VersionBundle) -> bool:
    """Put a bundle that is not there; whether it was put. Errors as of `VersionBundle.kept`, and AWS's own."""
    if holds_object(aws, bucket, bundle.key):
        return False
    with TemporaryDirectory(prefix="mark-bundle-") as folder:
        path = Path(folder) / "bundle.tar.gz"
        bundle.write(path)
        put_file(aws, bucket, bundle.key, path)
    return True


def pack(roots: Mapping[PurePosixPath, Path], path: Path, how_to_load: bytes) -> None:
    """Pack all files below each root, by its place in the bundle, without their times, owners and modes.

    how_to_load: the content of BACKEND_FILE.
    """
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as packed,
    ):
        told = tarfile.TarInfo(BACKEND_FILE)
        told.size = len(how_to_load)
        packed.addfile(told, io.BytesIO(how_to_load))
        for where, root in roots.items():
            for source in sorted(root.rglob("*")):
                if source.is_file():
                    entry = tarfile.TarInfo(str(where / source.relative_to(root).as_posix()))
                    entry.size = source.stat().st_size
                    with source.open("rb") as content:
                        packed.addfile(entry, content)
