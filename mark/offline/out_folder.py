"""The folder that `--out` names: the report, its figures, and a journal per policy.

The first policy's journal lies in the folder itself, that of each other policy in a folder of its name. Of a
service it is the journal of placements, and beside it each model has a folder in `models` with its own. The first
failure to write is kept and ends the writing, not the runs: they may have taken hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar
from urllib.parse import quote

from mark.controller.hosts.placement_journal import PlacementDecision
from mark.controller.journal import Header
from mark.controller.state import Decision, Observation
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.instances import FleetView
from mark.policies.bundles import policy_names
from mark.policies.present import SAGEMAKER, Present
from mark.report.files import JOURNAL_NAME, MODELS_NAME, PLACEMENTS_NAME, make_folder
from mark.report.page import DOCUMENT_NAME, REPORT_NAME, write_report, write_runs
from mark.report.runs.comparison import ComparedRun
from mark.simulator.services.service_replay import ServiceJournals
from mark.telemetry.journal_file import JournalFile, LineFile, PlacementFile

LONGEST_NAME = 200
"""Of a folder's name, which file systems limit to 255. The end of a longer one is kept: it has the class."""


class JournalFolder:
    """The folder with the journals of one run, made where it is missing.

    writes: the journal that the run writes in it first. `failure` is the first error, None while all is well.
    """

    def __init__(self, path: Path, writes: str = PLACEMENTS_NAME) -> None:
        self.path = path
        self.failure: MarkError | None = None
        self._first: str | None = None
        make_folder(path)
        try:
            (path / writes).touch()
            for old in self._files():  # what an earlier run left would explain another run
                if old != path / writes:
                    old.unlink(missing_ok=True)
        except OSError as error:
            raise Misconfigured(f"cannot write to --out {path}: {error.strerror}; name another folder") from error

    def _files(self) -> Iterator[Path]:
        """Where a run, of one model or a service, leaves something."""
        yield from (self.path / name for name in (DOCUMENT_NAME, REPORT_NAME))
        for folder in (self.path, *(self.path / name for name in policy_names()), *self.path.glob("*:*")):
            yield from (folder / name for name in (JOURNAL_NAME, PLACEMENTS_NAME))
            yield from (folder / MODELS_NAME).glob(f"*/{JOURNAL_NAME}")

    def policy_folder(self, policy: str) -> Path:
        """Folder of a policy's journals; the first call is for the first policy."""
        if self._first is None:
            self._first = policy
        return (
            self.path if policy == self._first else self.path / quote(policy, safe=":")[-LONGEST_NAME:]
        )  # an own one is a path

    def service_journals(self, policy: str) -> ServiceJournals:
        """The journals of a service's run under a policy that begins; opening and writing them does not raise."""
        folder = self.policy_folder(policy)
        return ServiceJournals(
            open_model=lambda header: OutJournal(
                self, folder / MODELS_NAME / header.model / JOURNAL_NAME, lambda path: JournalFile(path, header)
            ),
            open_placements=lambda header: OutPlacements(
                self, folder / PLACEMENTS_NAME, lambda path: PlacementFile(path, header)
            ),
        )

    def fail(self, error: MarkError) -> None:
        """Keep the first failure."""
        self.failure = self.failure or error


class OutFolder(JournalFolder):
    """The folder of one model's run."""

    def __init__(self, path: Path, *, title: str, command: str, now: Present = SAGEMAKER) -> None:
        super().__init__(path, JOURNAL_NAME)
        self._title, self._now = title, now
        self._command = command

    def open_journal(self, header: Header) -> OutJournal:
        """The journal of a run that begins; it does not raise."""
        path = self.policy_folder(header.policy.name) / JOURNAL_NAME
        return OutJournal(self, path, lambda path: JournalFile(path, header))

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


File = TypeVar("File", bound=LineFile)


class OutFile(Generic[File]):
    """A file that stops being written when it cannot be, and tells its folder."""

    def __init__(self, folder: JournalFolder, path: Path, open_file: Callable[[Path], File]) -> None:
        self._folder = folder
        self._file: File | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_file(path)
        except OSError as error:
            folder.fail(Misconfigured(f"cannot write {path}: {error.strerror}; name another --out"))
        except Misconfigured as error:
            folder.fail(error)

    def write(self, write: Callable[[File], None]) -> None:
        """Write to it, unless something failed before."""
        if self._file is None or self._folder.failure is not None:
            return
        try:
            write(self._file)
        except Misconfigured as error:
            self._folder.fail(error)

    def __enter__(self) -> Self:
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


class OutJournal(OutFile[JournalFile]):
    """The journal of one model."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick."""
        self.write(lambda file: file.append(before, seen, decision))


class OutPlacements(OutFile[PlacementFile]):
    """The journal of a service's placements."""

    def append(self, decision: PlacementDecision) -> None:
        """Write one decision."""
        self.write(lambda file: file.append(decision))
