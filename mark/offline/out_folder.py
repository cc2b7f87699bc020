"""The folder that `--out` names: the report, its figures, and a journal per policy.

The first policy's journal lies in the folder itself, that of each other policy in a folder of its name. The first
failure to write is kept and ends the writing, not the runs: they may have taken hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from mark.controller.journal import Header
from mark.controller.state import Decision, Observation
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet import FleetView
from mark.policies.bundles import policy_names
from mark.policies.present import SAGEMAKER, Present
from mark.report.files import make_folder
from mark.report.page import DOCUMENT_NAME, REPORT_NAME, write_report, write_runs
from mark.report.runs.comparison import ComparedRun
from mark.telemetry.journal_file import JournalFile

JOURNAL_NAME = "journal.jsonl"


class OutFolder:
    """One run's folder, made where it is missing. `failure` is the first error, None while all is well."""

    def __init__(self, path: Path, *, title: str, command: str, now: Present = SAGEMAKER) -> None:
        self.path = path
        self.failure: MarkError | None = None
        self._first: str | None = None
        self._title, self._now = title, now
        self._command = command
        make_folder(path)
        try:
            (path / JOURNAL_NAME).touch()
            for name in (DOCUMENT_NAME, REPORT_NAME):
                (path / name).unlink(missing_ok=True)
            for name in policy_names():  # what an earlier run left would explain another run
                (path / name / JOURNAL_NAME).unlink(missing_ok=True)
        except OSError as error:
            raise Misconfigured(f"cannot write to --out {path}: {error.strerror}; name another folder") from error

    def journal_path(self, policy: str) -> Path:
        """File of a policy's journal; the first call is for the first policy."""
        if self._first is None:
            self._first = policy
        return self.path / JOURNAL_NAME if policy == self._first else self.path / policy / JOURNAL_NAME

    def open_journal(self, header: Header) -> OutJournal:
        """The journal of a run that begins; it does not raise."""
        return OutJournal(self, header)

    def keep(self, runs: Sequence[ComparedRun]) -> None:
        """Write the figures of what has finished."""
        if self.failure is not None:
            return
        try:
            write_runs(self.path, runs, self._now)
        except Misconfigured as error:
            self.failure = error

    def write_report(self, runs: Sequence[ComparedRun], assumptions: Sequence[str]) -> Path | None:
        """Write the page and the document of what has finished; None where the folder has failed."""
        if self.failure is not None:
            return None
        try:
            return write_report(
                self.path,
                runs,
                title=self._title,
                command=self._command,
                assumptions=assumptions,
                now=self._now,
            )
        except Misconfigured as error:
            self.failure = error
            return None

    def fail(self, error: MarkError) -> None:
        """Keep the first failure."""
        self.failure = self.failure or error


class OutJournal:
    """A journal file that stops being written when it cannot be, and tells its folder."""

    def __init__(self, folder: OutFolder, header: Header) -> None:
        self._folder = folder
        self._file: JournalFile | None = None
        path = folder.journal_path(header.policy.name)
        try:
            path.parent.mkdir(exist_ok=True)
            self._file = JournalFile(path, header)
        except OSError as error:
            folder.fail(Misconfigured(f"cannot write {path}: {error.strerror}; name another --out"))
        except Misconfigured as error:
            folder.fail(error)

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick."""
        if self._file is None or self._folder.failure is not None:
            return
        try:
            self._file.append(before, seen, decision)
        except Misconfigured as error:
            self._folder.fail(error)

    def __enter__(self) -> OutJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        try:
            self._file.__exit__(kind, error, trace)
        except Misconfigured as failed:
            self._folder.fail(failed)
