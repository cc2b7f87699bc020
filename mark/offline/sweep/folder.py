"""A sweep's folder: what is finished, by key, and the page and document of all of it.

Every result is written whole as soon as it is there, so nothing that was computed is lost, whatever ends the
sweep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.domain.documents import json_text
from mark.offline.sweep.job import Finished, SweepJob
from mark.report.files import make_folder, write_whole

Document = Mapping[str, Any]


class SweepFolder:
    """`cells/` holds the replays, `yardsticks/` those of the loads; made where they are missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in (path, path / "cells", path / "yardsticks"):
            make_folder(folder)

    def kept(self, jobs: Sequence[SweepJob]) -> dict[str, Document]:
        """The results, by key, of those jobs that are finished."""
        found = {job.key: self._read(job) for job in jobs}
        return {key: result for key, result in found.items() if result is not None}

    def keep(self, finished: Finished) -> None:
        """Write the result of a job. Misconfigured where it cannot be written."""
        job = finished.job
        document = {
            "key": job.key,
            "label": job.label,
            "policy": job.policy,
            "settings": job.settings,
            "wall_s": finished.wall_s,
            "result": finished.document,
        }
        write_whole(self._path(job), json_text(document, indent=1) + "\n")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the whole sweep."""
        write_whole(self.path / name, text)
        return self.path / name

    def _path(self, job: SweepJob) -> Path:
        return self.path / ("cells" if job.policy else "yardsticks") / f"{job.key}.json"

    def _read(self, job: SweepJob) -> Document | None:
        """The result of a job; None where it is not there, or is not what was written."""
        try:
            document = json.loads(self._path(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        result = document.get("result") if isinstance(document, dict) else None
        return result if isinstance(result, dict) and document.get("key") == job.key else None
