"""Settings: one frozen, validated tree, which is what `mark.yaml` holds. docs/settings.md is generated from it.

Flags override the file, the file overrides the defaults; all are validated together, so an error names the flag
or the file's key that is wrong. Paths in a file count from the file's folder, paths in flags from the working
directory. The environment says where the cache and the state of live services are kept, and holds the variables
that settings name; processes in AWS take their start from theirs (`live/cloud_process.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from mark.cloudmodel.world import WorldName
from mark.config.account import AccountSettings
from mark.config.budget import BudgetSettings
from mark.config.capacity import CapacitySchedule
from mark.config.events import EventSettings
from mark.config.parts import (
    SECRET,
    DispatchRule,
    NotNegative,
    NotNegativeInt,
    Part,
    Positive,
    PositiveInt,
    Share,
    default_of,
)
from mark.config.rollout import RolloutSettings
from mark.config.service import ObjectiveSettings, OfferingSettings, ServiceSettings
from mark.config.telemetry import TelemetrySettings
from mark.config.trace import TraceSettings
from mark.controller.policy import ControllerPolicy, MonitorPolicy, StandbyPolicy
from mark.dispatch.central.policy import TooLate
from mark.domain.demand import HORIZON
from mark.domain.errors import Misconfigured, unknown
from mark.domain.load.size_window import WINDOW
from mark.domain.offerings.offering import LambdaOffering, Market
from mark.policies.bundles import MANAGED_CPU_FACTOR, MANAGED_GPU_FACTOR
from mark.policies.present import parse_present

MOST_SHOWN = 60
"""Characters of a wrong value that an error repeats."""
OF_MODELS = (
    *("objective", "market", "offerings", "profiles", "forecaster", "dispatch", "too_late", "capacity"),
    "trace",
)
"""Settings that a model of `service.serve` may have of its own."""
USUAL_QOS_POLICY = Path("qos-policy.npz")
"""File that `mark qos train` writes and that `qos-rl` serves by, unless told otherwise."""


class InterruptSettings(Part):
    """A scripted loss of spot instances."""

    at_min: NotNegative = Field(description="Minute of the run at which the notices come.")
    share: Share = Field(description="Share of the ready spot instances that is taken away.")
    offering: str = Field("", description="Only of this offering, such as c5.large:spot; empty for all.")


class RefusalSettings(Part):
    """A time in which launches are refused."""

    from_min: NotNegative = Field(description="First minute of the run.")
    to_min: Positive = Field(description="Minute of the run at which launches succeed again.")
    offering: str = Field("", description="Only of this offering, such as c5.large:spot; empty for all.")


class LateBootSettings(Part):
    """A time in which boots take longer."""

    from_min: NotNegative = Field(description="First minute of the run.")
    to_min: Positive = Field(description="Minute of the run at which boots are as usual again.")
    factor: Positive = Field(description="How many times as long a boot takes.")


class FaultSettings(Part):
    """Faults in a replay."""

    stress: NotNegative = Field(
        1.0, description="Multiplies the hazard of spot interruptions; 0 switches drawn interruptions off."
    )
    interrupts: tuple[InterruptSettings, ...] = Field((), description="Scripted losses of spot instances.")
    refusals: tuple[RefusalSettings, ...] = Field((), description="Times in which launches are refused.")
    late_boots: tuple[LateBootSettings, ...] = Field((), description="Times in which boots take longer.")


class MonitorSettings(Part):
    """The SLO monitor: a window that missed launches at once; `hedged` has it where Lambda is late or left out."""

    requests: PositiveInt = Field(
        default_of(MonitorPolicy, "requests"),
        description="A window ends after so many requests, or after `seconds`.",
    )
    seconds: Positive = Field(
        default_of(MonitorPolicy, "seconds"),
        description="A window ends after so many seconds, or after `requests`.",
    )
    count: PositiveInt = Field(
        default_of(MonitorPolicy, "count"), description="Instances launched after a window that missed."
    )
    cooldown_s: NotNegative = Field(
        default_of(MonitorPolicy, "cooldown_s"), description="How long the monitor is quiet after a launch."
    )
    instance_type: str | None = Field(
        None, description="What it launches; c5.large where it can serve, else the cheapest type."
    )


class StandbySettings(Part):
    """Stopped instances that bridge spot interruptions and, under hedged, surges: as many as pay."""

    max_count: NotNegativeInt = Field(
        default_of(StandbyPolicy, "max_count"), description="Standbys that are kept at most."
    )


class OverflowSettings(Part):
    """Lambda's quotas and size. They hold for every policy that uses Lambda, since the account is the same."""

    concurrency: PositiveInt = Field(
        default_of(LambdaOffering, "concurrency"),
        description="Calls that run at once at most (the account's quota); models leave two of them to the "
        "service's other functions.",
    )
    burst: PositiveInt = Field(
        default_of(LambdaOffering, "burst"), description="New environments that may start within 10 s."
    )
    memory_gib: Positive | None = Field(
        None,
        description="Memory of the function, which is billed; left out, as rollout.functions.memory_mib says.",
    )


class ManagedSettings(Part):
    """The price premium of managed endpoints (sagemaker) over plain instances."""

    cpu: Positive = Field(MANAGED_CPU_FACTOR, description="Times the price of types without an accelerator.")
    gpu: Positive = Field(MANAGED_GPU_FACTOR, description="Times the price of types with an accelerator.")


class PolicySettings(Part):
    """Changes to our own policies (hedged, mark, greedy-oracle, milp, kairos). Baselines stay as they are."""

    lead_min: int | None = Field(
        None,
        ge=1,
        lt=HORIZON,
        description="Minutes ahead that mark plans a fleet for, about what a launch takes; 5 when left out. For "
        "hedged each type's own boot counts.",
    )
    cooldown_min: NotNegative | None = Field(
        None,
        description="Minutes that a smaller plan must last before instances are drained; left out, 6 for mark "
        "and 0 for hedged, whose plan prices launching them again (6 without Lambda).",
    )
    max_instances: PositiveInt = Field(
        default_of(ControllerPolicy, "max_instances"), description="Instances at once at most, standbys included."
    )
    launch_weight_usd_per_s: NotNegative = Field(
        default_of(ControllerPolicy, "launch_weight_usd_per_s"),
        description="What milp adds to the price of a launch for each second that it takes: HetSev's weight of "
        "launch latency against cost.",
    )
    admission_factor: Share | None = Field(
        None,
        description="Share of latency_ms that a predicted answer may take before Lambda is asked instead; left "
        "out, 1 for mark and 0.98 for hedged.",
    )
    admission_confidence: float | None = Field(
        None,
        ge=0.5,
        lt=1.0,
        description="Probability with which an answer must be predicted within that share, where service times "
        "vary; 0.5 looks at the expected time. Left out, 0.5 for mark and the objective's target for hedged.",
    )
    budget_usd_per_hour: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="What the pool of the policy kairos may cost an hour; needed there and refused with others.",
    )
    size_window: int = Field(
        WINDOW,
        ge=0,
        description="Requests whose sizes the policy kairos remembers and chooses its pool by, once it knows a "
        "tenth of so many; 0 keeps to the sizes of the settings.",
    )
    monitor: MonitorSettings = Field(MonitorSettings(), description="The SLO monitor.")
    standby: StandbySettings = Field(StandbySettings(), description="Standbys.")
    overflow_limits: OverflowSettings = Field(OverflowSettings(), description="Lambda's quotas and size.")
    managed: ManagedSettings = Field(ManagedSettings(), description="Price premium of managed endpoints.")


def _known_present(text: str) -> str:
    try:
        parse_present(text)
    except Misconfigured as error:
        raise ValueError(str(error)) from error
    return text


class BootSettings(Part):
    """How long it takes until an instance serves."""

    median_s: Positive = Field(description="The median, seconds.")
    p95_s: Positive = Field(description="The 95 % point, seconds; at least the median.")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.p95_s < self.median_s:
            raise ValueError(f"p95_s ({self.p95_s:g}) must be at least median_s ({self.median_s:g})")
        return self


class RebalanceSettings(Part):
    """How well rebalance recommendations foretell spot notices; AWS publishes no figure."""

    share: float = Field(ge=0.0, le=1.0, description="Share of the notices that a recommendation precedes.")
    lead: BootSettings = Field(description="How long before the notice.")
    unfounded: float = Field(
        0.0, ge=0.0, description="Recommendations that no notice follows, as a multiple of the notices."
    )


class SimulateSettings(Part):
    """World of replays and of the emulated AWS: how kind the cloud is."""

    world: WorldName = Field(
        WorldName.TYPICAL,
        description="`ideal`: every batch takes what its profile says and nothing is refused but by script. "
        "`typical`: times vary, wakes and launches are refused at times, spot prices differ by zone and move. "
        "`rough`: a bad day. Plans and admission expect the same, on AWS too.",
    )
    launch: BootSettings | None = Field(
        None, description="Launch until an instance serves, in place of the world's; `mark explain` measures it."
    )
    wake: BootSettings | None = Field(None, description="The same from the order that wakes a standby.")
    rebalance: RebalanceSettings | None = Field(
        None, description="Rebalance recommendations of spot instances (docs/worlds.md); none when left out."
    )
    now: Annotated[str, AfterValidator(_known_present)] = Field(
        "sagemaker",
        description="What you run now, which a replay's verdict compares with: `sagemaker` and `hpa` as you would "
        "set them up, `static:N` for N instances around the clock, or your bill in USD a month.",
    )
    quotas: bool = Field(
        default=True,
        description="Whether the vCPU quotas of that account hold: 256 standard, 8 G and 0 P in each market. "
        "False for an account whose quotas were raised.",
    )


class Settings(Part):
    """All settings: the content of mark.yaml."""

    model: str | None = Field(None, description="The model that is served; `mark models` lists them.")
    objective: ObjectiveSettings = Field(ObjectiveSettings(), description="What is promised.")
    market: Market = Field(Market.ON_DEMAND, description="How instances are bought.")
    offerings: OfferingSettings = Field(OfferingSettings(), description="What may be rented.")
    models: Path | None = Field(
        None, description="File of models of your own (docs/own-model.md), beside the shipped ones."
    )
    profiles: tuple[str, ...] = Field(
        (), description="Further latency profiles: files, or names of shipped sets such as assumed-lambda."
    )
    prices: Path | None = Field(None, description="Price file; the shipped snapshot when left out.")
    service_prices: Path | None = Field(
        None,
        description="Prices of AWS's services beside instances (docs/costs.md); the shipped table of the region "
        "when left out.",
    )
    policies: tuple[str, ...] = Field(
        ("hedged",),
        min_length=1,
        description="Policies to run, or all; `mark policies` lists them; in a replay also your own, "
        "path/file.py:Name. A service runs the first.",
    )
    forecaster: str | None = Field(
        None, description="Replaces the policies' forecaster: a name, module:attribute or path/file.py:Name."
    )
    dispatch: DispatchRule | None = Field(
        None,
        description="Replaces the policies' rule that routes requests; for a model with variants also the "
        "rule that chooses them: slackfit (the default), slackfit-published, maxbatch, maxacc, fixed:VARIANT, "
        "qos-fixed, qos-heuristic or qos-rl; central: before one of the first five keeps one queue for all "
        "instances (docs/papers.md). A live service "
        "also knows the rules of a central queue: kairos, fcfs, clockwork or drs:SIZE (docs/papers.md); in a "
        "replay with the policy kairos also your own, path/file.py:Name.",
    )
    qos_policy: Path | None = Field(
        None,
        description="Policy of the dispatch rule qos-rl: a file that `mark qos train --model` wrote "
        "(docs/papers.md); qos-policy.npz in the working directory when left out.",
    )
    too_late: TooLate | None = Field(
        None,
        description="With a central queue, a request that no instance can answer in time any more: hold serves it "
        "when an instance would idle, commit in turn with the others, overflow has Lambda answer it. Left out, "
        "overflow where Lambda takes requests of the model, else hold.",
    )
    capacity: CapacitySchedule = Field(
        (), description="Least and most capacity by the clock (docs/worlds.md), for every policy."
    )
    events: tuple[EventSettings, ...] = Field(
        (),
        description="Announced events that forecasts take (docs/worlds.md); a running service takes more of "
        "`mark event add`.",
    )
    policy: PolicySettings = Field(PolicySettings(), description="How our own policies decide.")
    trace: TraceSettings = Field(TraceSettings(), description="The load that is replayed.")
    simulate: SimulateSettings = Field(SimulateSettings(), description="The world that is simulated.")
    faults: FaultSettings = Field(FaultSettings(), description="What goes wrong in a replay.")
    seed: int = Field(0, ge=0, description="Seed of all that is drawn; the same seed gives the same figures.")
    out: Path | None = Field(None, description="Folder for report.html, runs.json and the journals.")
    service: ServiceSettings = Field(ServiceSettings(), description="The live service that `mark up` starts.")
    telemetry: TelemetrySettings = Field(
        TelemetrySettings(), description="What a live service sends to a collector (docs/telemetry.md)."
    )
    budget: BudgetSettings = Field(BudgetSettings(), description="What may be spent.")
    account: AccountSettings = Field(AccountSettings(), description="What the AWS account has already.")
    rollout: RolloutSettings = Field(RolloutSettings(), description="The service in an AWS account.")


def load_settings(config: Path | Mapping[str, Any] | None, flags: Mapping[str, tuple[str, Any]]) -> Settings:
    """The settings of `config` (none: the defaults) under `flags`.

    config: a file, or what one in the working directory holds.
    `flags` maps a key such as `objective.target` to the flag's name and its value; None and an empty list were not
    given. Misconfigured, one line, where the file cannot be read or a value is wrong.
    """
    name = str(config) if isinstance(config, Path) else "settings"
    tree = _read(config) if isinstance(config, Path) else _anchored(_as_read(config or {}), Path())
    given = {key: flag for key, (flag, value) in flags.items() if value is not None and value != []}
    for key, (_, value) in flags.items():
        if key in given:
            _put(tree, key, value, name)
            _put_in_models(tree, key, value)
    _inherit(tree)
    try:
        return Settings.model_validate(tree, context={"file": name})
    except ValidationError as error:
        raise _refusal(error.errors()[0], given, name) from error


def settings_anywhere(settings: Settings) -> str:
    """Settings as JSON that means the same in each folder: its paths are absolute."""
    given = _anchored(json.loads(settings.model_dump_json(exclude_unset=True)), Path.cwd())
    return Settings.model_validate(given).model_dump_json()


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder of compiled code and trained weights: $MARK_CACHE, $XDG_CACHE_HOME/mark or ~/.cache/mark."""
    if environment.get("MARK_CACHE"):
        return Path(environment["MARK_CACHE"]).expanduser()
    base = environment.get("XDG_CACHE_HOME")
    return Path(base).expanduser() / "mark" if base else Path.home() / ".cache" / "mark"


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder of live services' sockets, logs and documents: $MARK_STATE, or mark under $XDG_STATE_HOME."""
    if environment.get("MARK_STATE"):
        return Path(environment["MARK_STATE"]).expanduser()
    base = environment.get("XDG_STATE_HOME")
    return Path(base).expanduser() / "mark" if base else Path.home() / ".local" / "state" / "mark"


def packages_dir() -> Path:
    """Folder of models' own packages on this machine (`mark/plugins/packages.py`)."""
    return state_dir() / ".packages"


def process_environment(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Environment of the service's processes.

    A rollout's templates make it (infra/stacks/control.py), or who calls `mark up`: of that no more is read
    than the variables that settings name.
    """
    return environment


MOST_VALUES = 100_000
"""Values in a configuration, with each alias counted as what it stands for."""


class _OnceLoader(yaml.SafeLoader):
    """YAML whose mappings hold each key once: of two, PyYAML takes the last one and says nothing.

    Aliases of aliases may make a few lines a billion values: MarkedYAMLError beyond MOST_VALUES.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._values, self._values_of = 0, dict[yaml.Node, int]()

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        """The node; what an alias names counts again."""
        before, mark = self._values, self.peek_event().start_mark  # type: ignore[no-untyped-call]
        node: yaml.Node | None = super().compose_node(parent, index)
        if node is not None:
            self._values += self._values_of.get(node, 1)
            self._values_of.setdefault(node, self._values - before)
        if self._values > MOST_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MOST_VALUES:,} values, aliases included", problem_mark=mark
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping; MarkedYAMLError where a key stands in it twice."""
        mapping: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            named = (key.tag, key.value)
            if named in lines:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} stands in line {lines[named]}, too; keep one of them",
                    problem_mark=key.start_mark,
                )
            lines[named] = key.start_mark.line + 1
        return mapping


def _read(config: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(config.read_text(encoding="utf-8"), Loader=_OnceLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise Misconfigured(f"cannot read the configuration {config}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f"cannot read the configuration {config}: it is not UTF-8 text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        said = getattr(error, "problem", None) or "no YAML"
        raise Misconfigured(f"{config}{line}: {said}") from error
    except ValueError as error:  # a number of thousands of digits, a day that no month has
        raise Misconfigured(f"{config}: {error}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise Misconfigured(f"{config}: a configuration holds keys and values, such as model: inception-v3")
    return _anchored(tree, config.parent)


def _as_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with the values that a file has: lists, numbers and texts."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(config), default=os.fspath))
    except (TypeError, ValueError) as error:
        raise Misconfigured(f"settings hold what no file can: {error}") from error
    return found


def _anchored(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths of the file count from its folder. Values of a wrong type are left for validation."""
    for key in ("models", "prices", "service_prices", "qos_policy", "out"):
        if isinstance(tree.get(key), str):
            tree[key] = str(folder / tree[key])
    account = tree.get("account")
    if isinstance(account, dict) and isinstance(account.get("commitments"), str):
        account["commitments"] = str(folder / account["commitments"])
    _anchor_trace(tree.get("trace"), folder)
    if isinstance(tree.get("profiles"), list):
        tree["profiles"] = [_anchored_file(item, folder, ".json") for item in tree["profiles"]]
    for key in tree.keys() & {"forecaster", "dispatch"}:
        tree[key] = _anchored_file(tree[key], folder, ".py")
    if isinstance(tree.get("policies"), list):
        tree["policies"] = [_anchored_file(item, folder, ".py") for item in tree["policies"]]
    _anchor_service(tree.get("service"), folder)
    telemetry = tree.get("telemetry")
    if isinstance(telemetry, dict) and isinstance(telemetry.get("headers_file"), str):
        telemetry["headers_file"] = str(folder / telemetry["headers_file"])
    rollout = tree.get("rollout")
    functions = rollout.get("functions") if isinstance(rollout, dict) else None
    if isinstance(functions, dict) and isinstance(functions.get("bundles"), str):
        functions["bundles"] = str(folder / functions["bundles"])
    return tree


def _anchor_trace(trace: object, folder: Path) -> None:
    if not isinstance(trace, dict):
        return
    if isinstance(trace.get("file"), str):
        trace["file"] = trace["file"] if "://" in trace["file"] else str(folder / trace["file"])
    if "sizes" in trace:
        trace["sizes"] = _anchored_file(trace["sizes"], folder, ".csv")


def _anchor_service(service: object, folder: Path) -> None:
    if not isinstance(service, dict):
        return
    for key in ("token_file", "tls_certificate", "tls_key"):
        if isinstance(service.get(key), str):
            service[key] = str(folder / service[key])
    served = service.get("serve")
    for one in served if isinstance(served, list) else ():
        if not isinstance(one, dict):
            continue
        if isinstance(one.get("profiles"), list):
            one["profiles"] = [_anchored_file(item, folder, ".json") for item in one["profiles"]]
        for key in one.keys() & {"forecaster", "policy_name", "dispatch"}:
            one[key] = _anchored_file(one[key], folder, ".py")
        if isinstance(one.get("trace"), str):
            one["trace"] = {"file": one["trace"]}
        _anchor_trace(one.get("trace"), folder)
        backend = one.get("backend")
        if isinstance(backend, dict) and "target" in backend:
            backend["target"] = _anchored_file(backend["target"], folder, ".py")
        if isinstance(backend, dict) and backend.get("kind") == "python":
            own = backend.get("folder") or "."
            backend["folder"] = str(folder / own) if isinstance(own, str) else own


def _inherit(tree: dict[str, Any]) -> None:
    """A model's sections `offerings` and `trace` have what the file's say, too.

    It is written into the model's: settings that are written and read again mean the same. Values of a wrong type
    are left for validation.
    """
    for one in _served(tree):
        for section in ("offerings", "trace"):
            if isinstance(one.get(section), dict) and isinstance(whole := tree.get(section), dict):
                one[section] = whole | one[section]


def _anchored_file(value: object, folder: Path, suffix: str) -> object:
    """A name stays as it is, a file (with its suffix, and maybe `:Name` behind it) counts from the folder."""
    is_file = isinstance(value, str) and value.partition(":")[0].endswith(suffix)
    return str(folder / str(value)) if is_file else value


def _put(tree: dict[str, Any], key: str, value: object, config: str) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        branch = tree.setdefault(parent, {})
        if not isinstance(branch, dict):
            raise Misconfigured(f"{config}: {parent} holds keys and values, not {branch!r}")
        tree = branch
    tree[last] = value


def _put_in_models(tree: dict[str, Any], key: str, value: object) -> None:
    """A flag overrides the file: what a model says itself, too. Values of a wrong type are left for validation."""
    section, _, last = key.partition(".")
    for one in _served(tree):
        if section == "policies":
            one.pop("policy_name", None)
        elif section == "trace" and isinstance(one.get("trace"), str):
            one["trace"] = {"file": one["trace"]} | {last: value}
        elif section in OF_MODELS and isinstance(own := one.get(section), dict) and last:
            own[last] = value
        elif section in OF_MODELS and section in one:
            one[section] = value


def _served(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The models that the file serves."""
    service = tree.get("service")
    served = service.get("serve") if isinstance(service, dict) else None
    yield from (one for one in (served if isinstance(served, list) else ()) if isinstance(one, dict))


def _refusal(error: ErrorDetails, flags: Mapping[str, str], config: str) -> Misconfigured:
    """The first thing that is wrong, in one line that names the flag, or the file and its key."""
    path = tuple(part for part in error["loc"])
    key = ".".join(str(part) for part in path)
    flag = next((name for prefix, name in flags.items() if key == prefix or key.startswith(f"{prefix}.")), None)
    where = flag or f"{config}: {key}"
    value = error["input"]
    if error["type"] == "extra_forbidden":
        parent = ".".join(str(part) for part in path[:-1])
        kind = f"key in {parent}" if parent else "key"
        return Misconfigured(f"{flag or config}: {unknown(kind, str(path[-1]), _keys(path[:-1]))}")
    if error["type"] == "missing":
        return Misconfigured(f"{where} is missing")
    choices = _choices(path)
    if choices and isinstance(value, str):
        return Misconfigured(f"{where}: {unknown(str(path[-1]), value, choices)}")
    if error["type"] == "value_error":  # of several keys: it names them, and what they hold is no help
        return Misconfigured(f"{where}: {error['msg'].removeprefix('Value error, ')}")
    if error["type"] == "too_long":
        return Misconfigured(f"{where} should hold {error['ctx']['max_length']} at most, not {len(value)}")
    said = _SAID.get(error["type"]) or error["msg"].replace("Input should", "should")
    if path[-1:] == ("[key]",):
        where, said = f"{config}: {'.'.join(str(part) for part in path[:-2])}:", f"a key {said}"
    return Misconfigured(f"{where} {said}" if error["type"] == SECRET else f"{where} {said}, not {_shown(value)}")


def _shown(value: object) -> str:
    """The value as it stands, a long one by its begin."""
    text = repr(value)
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}..." + (f" ({len(value)} characters)" if isinstance(value, str) else "")


_SAID = {
    "tuple_type": "should be a list",
    "too_short": "should name one at least",
    "model_type": "should hold keys and values",
    "invalid_key": "is not a key; keys are text",
    "string_type": "should be text, in quotes where it looks like a number",
    "float_parsing": "should be a number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
}
"""Errors that pydantic words for programmers."""


def _part(path: tuple[int | str, ...]) -> type[BaseModel]:
    """The part of the tree under a path of keys and indices."""
    part: type[BaseModel] = Settings
    for key in path:
        if isinstance(key, str) and key in part.model_fields:
            part = next((t for t in types_of(part.model_fields[key].annotation) if issubclass(t, BaseModel)), part)
    return part


def _keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    return tuple(_part(path).model_fields)


def _choices(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The values of the enumeration that a key holds; none where it holds something else."""
    field = _part(path[:-1]).model_fields.get(str(path[-1]))
    enums = [t for t in types_of(field.annotation) if issubclass(t, Enum)] if field else []
    return tuple(str(member.value) for enum in enums for member in enum)


def types_of(annotation: Any) -> tuple[type, ...]:
    """The classes that an annotation is made of: `tuple[Part, ...] | None` gives Part and NoneType."""
    arguments = getattr(annotation, "__args__", ())
    if arguments:
        return tuple(found for argument in arguments for found in types_of(argument))
    return (annotation,) if isinstance(annotation, type) else ()
