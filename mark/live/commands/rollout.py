"""`mark rollout`: replace the version of a model that a running service serves, in steps, or go back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mark.accounting.compaction import usage_of
from mark.accounting.version_costs import VersionCost, version_costs
from mark.config.served import served_models
from mark.config.service import RolloutsSettings
from mark.config.settings import Settings
from mark.domain.errors import MarkError, Misconfigured, RetryLater, unknown
from mark.domain.figures import share_words
from mark.domain.fleet.member import MemberState
from mark.domain.models.versions import (
    CanaryPolicy,
    ModelVersions,
    Rollout,
    RolloutCommand,
    RolloutPhase,
    RolloutProgress,
    RolloutVerb,
    VersionCounts,
    counted_since,
    shadow_sentence,
    shown,
)
from mark.live.backend_specs import backend_spec, check_loads, tensors_of
from mark.live.local.run_dir import RunFolder
from mark.live.model_files import changed_files
from mark.live.rollout_progress import progress_of
from mark.live.service_session import keep_bundle, remove_copies, service_store
from mark.live.version_bundles import MOST_IN_FUNCTION_MIB, VersionBundle, bundle_of, runs_in_function
from mark.report.formatting import MISSING, usd
from mark.report.tables import make_table, texts
from mark.report.terminal import show, show_json
from mark.service_spec import ServedModel
from mark.steady_time import steady_time
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.service import ServiceStore

HANDLED_S = 60.0
"""Time that an acting controller may take to carry out a command; one that takes over needs some of it."""
GONE_S = 60.0
"""Time that the instances of an aborted version may take to leave."""
POLL_S = 0.05
GOING_BACK = "to go back, put the old files in their place and roll them out by `mark rollout start`"
"""What takes the place of an abort after a promotion."""
FILES_NAMED = 5
"""Changed files that a start names."""
NO_CANARY = "none"
"""In place of shares: the new version is compared alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """A rollout as its flags say it. canary: shares in percent, or none; flags: of `service.rollouts`, by key.

    model: None for a service's only one.
    """

    model: str | None = None
    canary: Sequence[str] = ()
    flags: Mapping[str, float | None] = field(default_factory=dict)

    def policy(self, usual: RolloutsSettings) -> CanaryPolicy:
        """The steps and times: the flags', or else the usual ones. Misconfigured where the steps are none."""
        given: dict[str, object] = {key: value for key, value in self.flags.items() if value is not None}
        if self.canary:
            given["canary"] = () if list(self.canary) == [NO_CANARY] else self._steps()
        return usual.model_copy(update=given).policy

    def _steps(self) -> tuple[float, ...]:
        try:
            return tuple(float(text.removesuffix("%")) for text in self.canary)
        except ValueError:
            raise Misconfigured(
                f"--canary {','.join(self.canary)}: name shares in percent, such as 5,25,100, or none"
            ) from None


def start_rollout(settings: Settings, options: StartOptions, *, given: bool, as_json: bool) -> None:
    """Start to roll out a model as its files are now. given: the settings are those of a file, not the service's.

    Misconfigured where nothing has changed, or the new version cannot take the place of the one that serves.
    """
    folder = RunFolder.of(settings.service.name)
    store, versions = _versions(settings, options.model)
    wanted = settings if given or folder.running() is None else folder.settings()
    policy = options.policy(wanted.service.rollouts)
    entries, model = {one.model: one for one in served_models(wanted)}, versions.model
    if model not in entries:
        raise unknown("model of the settings", model, entries)
    entry, spec = entries[model].backend, store.spec()
    served = spec.served(model)
    check_may_start(served, versions, policy)
    if tensors_of(entry, model) != (served.inputs, served.outputs):
        raise Misconfigured(
            f"the new {model} has other inputs or outputs, which clients see: serve it as another model"
        )
    bundle = bundle_of(backend_spec(entry), model, served.model.architectures)
    if bundle.version == versions.stable:
        raise Misconfigured(
            f"nothing to roll out: {model} is version {shown(bundle.version)} as its files are, and that serves"
        )
    if entry.kind == "python":
        with bundle.kept() as copy:
            check_loads(copy, model)
    if served.function_versions:
        _check_runs_in_function(served, bundle)
    stable = next((one for one in store.served_versions(model) if one.version == versions.stable), served)
    changed = changed_files(stable.backend, bundle.source)
    backend = keep_bundle(settings, store, served, bundle)
    candidate = replace(served, version=bundle.version, backend=backend)
    store.put_version(candidate, spec)
    versions = give_command(store, model, RolloutVerb.START, candidate=bundle.version, policy=policy)
    remove_copies(settings, model, store.forget_versions(model))
    if versions.rollout is None or versions.rollout.candidate != bundle.version:
        raise Misconfigured(f"another rollout of {model} began at the same time; see `mark rollout status`")
    if changed and not as_json:
        show(f"changed: {_named(changed)}")
    _show(store, versions, as_json=as_json)


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - FILES_NAMED:,} more" if len(files) > FILES_NAMED else ""
    return f"{', '.join(files[:FILES_NAMED])}{more}"


def edited_models(settings: Settings) -> tuple[str, ...]:
    """Models of a running service whose files are no longer what it serves; none where that cannot be known."""
    try:
        store, names = service_store(settings)
        found = [
            one.model
            for one in served_models(settings)
            if one.model in names
            and (versions := store.versions(one.model)) is not None
            and bundle_of(backend_spec(one.backend)).version not in (versions.stable, *_candidate(versions))
        ]
    except MarkError:
        return ()
    return tuple(found)


def _candidate(versions: ModelVersions) -> tuple[str, ...]:
    return () if versions.rollout is None or versions.rollout.is_over else (versions.rollout.candidate,)


def show_rollout(settings: Settings, model: str | None, *, as_json: bool) -> None:
    """Show the versions of a model, and its rollout."""
    store, versions = _versions(settings, model)
    _show(store, versions, as_json=as_json)


def promote_rollout(settings: Settings, model: str | None, *, as_json: bool) -> None:
    """Have the new version take over once its instances are ready. Misconfigured where none is rolled out."""
    store, versions = _versions(settings, model)
    rollout = _running(versions)
    versions = give_command(store, versions.model, RolloutVerb.PROMOTE)
    _check_not(RolloutPhase.ABORTED, rollout, versions)
    _show(store, versions, as_json=as_json)


def abort_rollout(settings: Settings, model: str | None, *, as_json: bool) -> None:
    """Give all traffic back to the stable version; returns once no instance of the new one takes requests.

    Misconfigured where none is rolled out.
    """
    store, versions = _versions(settings, model)
    model, rollout = versions.model, versions.rollout
    if rollout is not None and rollout.phase is RolloutPhase.PROMOTED:
        raise Misconfigured(
            f"version {shown(rollout.candidate)} of {model} serves since its promotion; {GOING_BACK}"
        )
    rollout = _running(versions)
    candidate = rollout.candidate
    versions = give_command(store, model, RolloutVerb.ABORT)
    _check_not(RolloutPhase.PROMOTED, rollout, versions)
    members = store.membership(model)
    _until(
        lambda: not any(one.version == candidate and one.state is MemberState.READY for one in members.members()),
        f"instances of version {shown(candidate)} still run; they get no requests",
        GONE_S,
    )
    _show(store, versions, as_json=as_json)


def _versions(settings: Settings, model: str | None) -> tuple[ServiceStore, ModelVersions]:
    """The service's store, and a model's versions in it; those of its only one where none is named."""
    store, models = service_store(settings)
    if model is None:
        if len(models) > 1:
            raise Misconfigured(f"the service has {len(models)} models: add --model with {' or '.join(models)}")
        model = models[0]
    if model not in models:
        raise unknown("model of the service", model, models)
    versions = store.versions(model)
    if versions is None:
        raise Misconfigured(
            f"{model} is served without versions: a service of `mark up` has them where the model's files can be "
            "copied (its supervisor's log says why not), one of `mark deploy` once it was deployed by this release"
        )
    return store, versions


def check_may_start(served: ServedModel, versions: ModelVersions, policy: CanaryPolicy) -> None:
    """Misconfigured where another version of the model cannot be rolled out now."""
    name = served.name
    if policy.shadow and served.backend.streams:
        raise Misconfigured(f"{name} streams its answers, which are not compared: use --shadow 0")
    if policy.shadow and not served.model.redispatch:
        raise Misconfigured(
            f"{name} forbids that a request is executed twice (redispatch), which a shadow does: use --shadow 0"
        )
    if versions.candidate:
        raise Misconfigured(
            f"version {shown(versions.candidate)} of {name} is being rolled out: "
            "`mark rollout promote` or `abort` first"
        )
    if served.overflow is not None and not served.function_versions:
        raise Misconfigured(
            f"{name} overflows to Lambda, and its function cannot answer as a new version: {_one_version(served)};"
            " serve it with offerings: {overflow: false} to roll out others (docs/versions.md)"
        )


def _one_version(served: ServedModel) -> str:
    """Why the functions of a model answer as the version that they were made with, and no other."""
    if served.backend.kind != "python":
        return f"its backend is {served.backend.kind}, and only Python code is brought into a function"
    if served.has_central_queue:
        return "it has a central queue"
    return (
        f"its files take more than {MOST_IN_FUNCTION_MIB} MiB, or rollout.functions.provisioned loads them before "
        "a call can name a version"
    )


def _check_runs_in_function(served: ServedModel, bundle: VersionBundle) -> None:
    if not runs_in_function(bundle):
        raise Misconfigured(
            f"the new {served.name} overflows to Lambda, which runs versions of Python models of "
            f"{MOST_IN_FUNCTION_MIB} MiB at most: serve it with offerings: {{overflow: false}}"
        )


def _check_not(phase: RolloutPhase, rollout: Rollout, versions: ModelVersions) -> None:
    """Misconfigured where a rollout ended so before a command about it was carried out."""
    found = versions.rollout
    if found is not None and found.id == rollout.id and found.phase is phase:
        going_back = f"; {GOING_BACK}" if phase is RolloutPhase.PROMOTED else ""
        raise Misconfigured(
            f"version {shown(rollout.candidate)} was {phase} before the command: {found.reason}{going_back}"
        )


def _running(versions: ModelVersions) -> Rollout:
    if versions.rollout is None or versions.rollout.is_over:
        raise Misconfigured(f"no version of {versions.model} is being rolled out; `mark rollout start` does it")
    return versions.rollout


def give_command(
    store: ServiceStore, model: str, verb: RolloutVerb, *, candidate: str = "", policy: CanaryPolicy | None = None
) -> ModelVersions:
    """Give a command and wait until the acting controller has carried it out; the versions then.

    RetryLater where none does, or where another command took its place before.
    """
    command = RolloutCommand(
        id=uuid.uuid4().hex[:8], verb=verb, candidate=candidate, policy=policy or CanaryPolicy()
    )
    ROLLOUT_COMMAND.write(store, command, model)

    def is_handled() -> bool:
        given = ROLLOUT_COMMAND.read(store, model)
        found = store.versions(model)
        is_carried_out = found is not None and found.command == command.id
        if not is_carried_out and given is not None and given.id != command.id:
            raise RetryLater(
                f"`{given.verb}` was commanded at the same time, in place of this; see `mark rollout status`"
            )
        return is_carried_out

    _until(is_handled, "no controller has carried the command out yet; the next one that acts will", HANDLED_S)
    found = store.versions(model)
    assert found is not None
    return found


def _until(check: Callable[[], bool], otherwise: str, within_s: float) -> None:
    """Wait until `check` holds. RetryLater, saying what is otherwise, where that takes too long."""
    until = time.monotonic() + within_s
    while not check():
        if time.monotonic() > until:
            raise RetryLater(otherwise)
        time.sleep(POLL_S)


def _show(store: ServiceStore, versions: ModelVersions, *, as_json: bool) -> None:
    counts = _counts(store, versions)
    costs = _costs(store, versions)
    progress = _progress(store, versions)
    if as_json:
        show_json(_document(versions, counts, costs, progress))
        return
    rollout = versions.rollout
    if rollout is None:
        show(f"{versions.model}  version {shown(versions.stable)}, no rollout")
        return
    show(f"{versions.model}  {shown(rollout.candidate)} in place of {shown(rollout.before)}, {rollout.words}")
    table = make_table(
        texts("version", "role", "share", "answered", "late", "failed", "mean ms", "instance hours", "their USD"),
        gap=2,
    )
    for row in _rows(versions, rollout, counts, costs):
        table.add_row(*row)
    show(table)
    for text in () if progress is None else progress.sentences:
        show(text)
    candidate = counts.get(rollout.candidate)
    if not versions.shadow and candidate is not None and candidate.compared + candidate.shadow_dropped:
        show(f"shadow: {shadow_sentence(candidate)}")
    if rollout.verdict and rollout.verdict != rollout.reason:
        show(f"verdict: {rollout.verdict}")


def _counts(store: ServiceStore, versions: ModelVersions) -> dict[str, VersionCounts]:
    """What both versions did since the rollout began, as far as its hours and cost go."""
    before = {} if versions.rollout is None else {one.version: one for one in versions.rollout.counted_before}
    counted = store.traffic(versions.model).versions
    return {one.version: counted_since(one, before.get(one.version)) for one in counted}


def _progress(store: ServiceStore, versions: ModelVersions) -> RolloutProgress | None:
    if not versions.candidate:
        return None
    now = store.clock().service_time(steady_time())
    return progress_of(store.spec().served(versions.model), versions, store.traffic(versions.model).versions, now)


def _costs(store: ServiceStore, versions: ModelVersions) -> dict[str, VersionCost]:
    """What the instances of both versions cost from the rollout's start to its end, or until now."""
    rollout = versions.rollout
    if rollout is None:
        return {}
    until = rollout.since if rollout.is_over else store.clock().service_time(steady_time())
    served, both = store.spec().served(versions.model), (rollout.before, rollout.candidate)
    used = partial(usage_of, store.ledger(versions.model))
    return {one.version: one for one in version_costs(used, served, both, since=rollout.began_at, until=until)}


def _rows(
    versions: ModelVersions, rollout: Rollout, counts: dict[str, VersionCounts], costs: dict[str, VersionCost]
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for version in (rollout.before, rollout.candidate):
        one, cost = counts.get(version, VersionCounts(version=version)), costs[version]
        rows.append(
            (
                version,
                _role(versions, version),
                share_words(_share(versions, version)),
                str(one.answered),
                str(one.late),
                str(one.failed),
                f"{1000 * one.mean_latency_s:.0f}" if one.answered else MISSING,
                *((f"{cost.instance_hours:.2f}", usd(cost.usd)) if cost.instance_hours else (MISSING, MISSING)),
            )
        )
    return rows


def _role(versions: ModelVersions, version: str) -> str:
    if version == versions.stable:
        return "stable"
    if version == versions.candidate:
        return "candidate"
    rollout = versions.rollout
    if rollout is None or version != rollout.candidate:
        return "replaced"
    return "aborted" if versions.is_aborted(version) else "compared"


def _share(versions: ModelVersions, version: str) -> float:
    """The version's share of the requests that name none."""
    if version == versions.candidate:
        return versions.weight
    return 1.0 - versions.weight if version == versions.stable else 0.0


def _document(
    versions: ModelVersions,
    counts: dict[str, VersionCounts],
    costs: dict[str, VersionCost],
    progress: RolloutProgress | None,
) -> dict[str, object]:
    """The document of `mark rollout --json` (docs/json.md)."""
    rollout = versions.rollout
    names = (versions.stable,) if rollout is None else (rollout.before, rollout.candidate)
    return {
        "model": versions.model,
        "stable": versions.stable,
        "candidate": versions.candidate or None,
        "phase": None if rollout is None else rollout.phase.value,
        "is_over": rollout is None or rollout.is_over,
        "verdict": None if rollout is None else rollout.verdict or None,
        "reason": None if rollout is None else rollout.reason,
        "weight": versions.weight,
        "shadow": versions.shadow,
        "began_at": None if rollout is None else rollout.began_at,
        "since": None if rollout is None else rollout.since,
        "step": None
        if progress is None
        else {
            "answers": progress.answers,
            "answers_needed": progress.answers_needed,
            "twice_as_bad_passes": progress.twice_as_bad_passes,
            "left_s": progress.left_s,
        },
        "versions": [
            {
                "version": name,
                "role": _role(versions, name),
                "share": _share(versions, name),
                "answered": one.answered,
                "late": one.late,
                "failed": one.failed,
                "mean_latency_s": one.mean_latency_s,
                "compared": one.compared,
                "differing": one.differing,
                "shadow_failed": one.shadow_failed,
                "shadow_dropped": one.shadow_dropped,
                "mean_shadow_s": one.mean_shadow_s,
                "mean_shadowed_s": one.mean_shadowed_s,
                "instance_hours": cost.instance_hours,
                "cost_usd": cost.usd,
            }
            for name in names
            for one in (counts.get(name, VersionCounts(version=name)),)
            for cost in (costs.get(name, VersionCost(version=name)),)
        ],
    }
