"""Files of versions on a shared instance, fetched while it runs by the process beside its agent, which may do so.

Each version is fetched once and is there whole or not at all. Nobody waits for a connection meanwhile: who asks is
told how far it is, and asks again.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import IO

from mark.domain.errors import MarkError
from mark.domain.models.versions import shown
from mark.plugins.version_hash import NAME, check_unpacked

READY, LOADING = "ready", "loading"
log = logging.getLogger("mark.metadata")

Open = Callable[[str], IO[bytes]]
"""The bundle of a version. Errors: MarkError."""


class VersionFetch:
    """Versions below `folder`. Calls may come from any thread."""

    def __init__(self, folder: Path, open_bundle: Open) -> None:
        self._folder, self._open = folder, open_bundle
        self._lock = Lock()
        self._loading: set[str] = set()
        self._failed: dict[str, str] = {}

    def ask(self, version: str) -> str | None:
        """`ready`, `loading`, or why the last attempt failed; a failure is told once, the next call tries again.

        None for what is no version's name.
        """
        if NAME.fullmatch(version) is None:
            return None
        with self._lock:
            if (self._folder / version).is_dir():
                return READY
            if version in self._failed:
                return self._failed.pop(version)
            if version not in self._loading:
                self._loading.add(version)
                Thread(target=self._fetch, args=(version,), daemon=True).start()
            return LOADING

    def _fetch(self, version: str) -> None:
        failed, what = "", f"the files of version {shown(version)} cannot be fetched"
        try:
            unpack(self._open, version, self._folder)
        except (MarkError, OSError, tarfile.TarError, EOFError) as error:
            failed = f"{what}: {getattr(error, 'strerror', None) or error}"
            log.error(failed)  # noqa: TRY400 - no fault of ours
        except Exception:
            failed = f"{what}; the log of the metadata process says why"
            log.exception("a version cannot be fetched")
        finally:
            with self._lock:
                self._loading.discard(version)
                if failed:
                    self._failed[version] = failed


def unpack(open_bundle: Open, version: str, folder: Path) -> None:
    """Fetch a bundle, unpack it, and check that it is that version. Errors: MarkError, OSError, TarError."""
    draft = folder / f".new-{version}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o755)
    try:
        with open_bundle(version) as body, tarfile.open(fileobj=body, mode="r|gz") as packed:
            packed.extractall(draft, filter="data")
        check_unpacked(draft, version)
        for path in draft.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        draft.rename(folder / version)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
