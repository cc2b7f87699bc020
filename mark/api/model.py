"""A model with its profiles, as an argument of `simulate` and the other calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mark.api.keyword_errors import names_keywords
from mark.catalog.load import read_text
from mark.catalog.schema import parse_profiles
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, unknown
from mark.offline.own_model.init_from_target import InitOptions, measured_model


@dataclass(frozen=True, slots=True)
class Model:
    """A model that brings its profiles along: `model=` takes it where it takes a name.

    name: the model's. profile: file of its profiles. models: file of its objective and needs; None for those of a
    shipped model of that name.

    >>> Model.from_profile("profile.json")
    Traceback (most recent call last):
    mark.domain.errors.Misconfigured: profile.json: cannot be read: No such file or directory
    """

    name: str
    profile: Path
    models: Path | None = None

    @classmethod
    @names_keywords
    def from_profile(cls, path: str | Path, *, name: str | None = None, models: str | Path | None = None) -> Model:
        """The model of a profile file, such as `mark profile --out` writes.

        name: of one, where the file has several. models: file of its objective and needs, such as `mark init`
        writes; left out, model.json beside the profile, where there is one. Raises Misconfigured, one line.
        """
        profile = Path(path)
        names = dict.fromkeys(one.model for one in parse_profiles(read_text(profile), str(profile)))
        if name is not None and name not in names:
            raise unknown(f"model in {profile}", name, names)
        if name is None and len(names) != 1:
            raise Misconfigured(f"{profile} has {', '.join(names)}: give name, one of them")
        beside = profile.with_name(MODEL_FILE)
        needs = beside if models is None and beside.is_file() else models
        return cls(name or next(iter(names)), profile, None if needs is None else Path(needs))

    @classmethod
    @names_keywords
    def measure(
        cls,
        target: str,
        *,
        out: str | Path | None = None,
        slo_ms: float | None = None,
        slo_target: float | None = None,
        memory_gib: float | None = None,
        seconds: float = 5.0,
        force: bool = False,
    ) -> Model:
        """Load, call and measure a model in this process, as `mark init TARGET` does; it needs its packages here.

        target: `path/file.py:Name` and what else the command takes. out: folder for model.json, profile.json and
        mark.yaml; left out, the target's. slo_ms: the objective, milliseconds; left out, ten times a call's time.
        slo_target: share that must keep it. memory_gib: left out, as measured. seconds: to measure at most. force:
        overwrite existing files. Raises Misconfigured, one line.
        """
        if not seconds > 0:
            raise Misconfigured(f"seconds must be above 0, not {seconds:g}")
        options = InitOptions(
            target=target,
            out=None if out is None else Path(out),
            model=None,
            latency_ms=slo_ms,
            share=slo_target,
            memory_gib=memory_gib,
            rps=None,
            settings=Settings(),
            seconds=seconds,
            ask=False,
            force=force,
        )
        with ThreadPoolExecutor(
            1
        ) as aside:  # a notebook has an event loop in this thread, measuring needs its own
            folder, found = aside.submit(measured_model, options).result()
        return cls(found.needs.name, folder / PROFILE_FILE, folder / MODEL_FILE)
