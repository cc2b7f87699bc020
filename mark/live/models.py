"""From settings to what a live service serves: each model with its policy, offerings, backend and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mark.aws.names import HANDLERS, TRAIN
from mark.catalog.load import PriceSnapshot, known_models, load_models, shipped_sets
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE
from mark.config.footprint import footprint_of
from mark.config.policies import (
    check_events,
    chosen_central,
    chosen_overrides,
    chosen_policies,
    chosen_variants,
    sized_model,
    usable_cache,
)
from mark.config.served import lacks_torch, model_names
from mark.config.service import Mode, ServedSettings, Sharing
from mark.config.settings import Settings
from mark.config.telemetry import telemetry_of
from mark.controller.policy import OWN
from mark.dispatch.policy import Routing
from mark.domain.demand import KEEP_HISTORY, UNIT_S, WINDOW_S, Demand, unit_of_windows
from mark.domain.errors import Misconfigured, unknown
from mark.domain.models.objective import Slo
from mark.domain.models.versions import functions_of
from mark.domain.plan import Excuse
from mark.live.backend_specs import Tensors, backend_spec, can_switch, has_packages, tensors_of
from mark.offline.learned_policy import policy_reader
from mark.offline.own_model.targets import existing_source
from mark.offline.workloads import chosen_workload, each_seeded
from mark.plugins.packages import REQUIREMENTS
from mark.policies.assemble import Assembly
from mark.policies.bundles import PolicyBundle
from mark.policies.spec import VariantWishes
from mark.ports import ForecasterSetup
from mark.service_spec import ServedModel, ServiceSpec
from mark.serving.backends.factory import STREAMS_IN_AGENT
from mark.simulator.rng import stream

EXPECTED_RPS = 10.0
"""Load to start with where nothing says what came before."""
HOUR_S = 3600.0
EXPECTED_UNITS = 60
"""An hour of it is what a forecaster learns from until real load comes."""
NOTHING: Mapping[str, Tensors] = {}
LEFT_OUT = "served without digits, which needs torch: pip install 'mark-serving[models]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModel:
    """One model of a live service: what is served, its policy, what its forecaster learns from, and prices.

    excuses: why types on which it is profiled are not offered.
    assumed_rps: what `setup.history` takes for the load that came before, requests/s; None where a trace tells it.
    """

    served: ServedModel
    bundle: PolicyBundle
    setup: ForecasterSetup
    prices: PriceSnapshot
    notes: tuple[str, ...]
    excuses: tuple[Excuse, ...] = ()
    assumed_rps: float | None = None
    #: With whom it shares instances: models of the same team, or nobody.
    team: str = ""
    alone: bool = False

    @property
    def name(self) -> str:
        """The model's name."""
        return self.served.name

    @property
    def folder(self) -> Path | None:
        """First folder of a Python model's modules."""
        return Path(self.served.backend.folder) if self.served.backend.folder else None

    def history(self, end_at: float) -> Demand:
        """The load that came before, as if it had ended at `end_at` (service time)."""
        return replace(self.setup.history, end_at=end_at)


def make_live_models(settings: Settings, known: Mapping[str, Tensors] = NOTHING) -> tuple[LiveModel, ...]:
    """The models that the settings name, ready to serve. Misconfigured where one cannot be.

    known: inputs and outputs of models that are not loaded to see them, by name.
    """
    names = model_names(settings)
    for name in names:
        if name in (*HANDLERS, TRAIN):
            raise Misconfigured(
                f"a model cannot be named {name}: a function of the service has that name; rename it"
            )
        if (second := functions_of(name)[1]) in names:
            raise Misconfigured(
                f"a model cannot be named {second} beside {name}, whose second function has that name; rename it"
            )
    check_events(settings, names)
    models = [_make(one, entry, settings.service.name, known) for one, entry in each_seeded(settings)]
    budget = settings.policy.budget_usd_per_hour
    if budget is not None and all(model.bundle.controller.pool is None for model in models):
        raise Misconfigured(
            f"no model of the service has the policy kairos, which keeps a budget of {budget:g} USD/h: set its "
            "policy_name, or leave policy.budget_usd_per_hour out"
        )
    if lacks_torch(settings):
        models[0] = replace(models[0], notes=(*models[0].notes, LEFT_OUT))
    return tuple(models)


def able_to_share(settings: Settings, models: Sequence[LiveModel]) -> tuple[LiveModel, ...]:
    """The models that may share instances; none where fewer than two may, or nothing is rented.

    Streams, variants, requests with sizes and central queues have instances of their own.
    """
    if settings.service.mode is Mode.OBSERVE:
        return ()
    able = tuple(model for model in models if _may_share(model))
    return able if len(able) > 1 else ()


def _may_share(model: LiveModel) -> bool:
    served, bundle = model.served, model.bundle
    is_plain = served.variant_serving is None and served.central is None and not served.backend.streams
    return is_plain and bundle.shares and not bundle.uses_truth and not model.alone


def service_spec(settings: Settings, models: Sequence[LiveModel]) -> ServiceSpec:
    """Specification that gateways, agents and handlers read."""
    return ServiceSpec(
        name=settings.service.name,
        models=tuple(model.served for model in models),
        footprint=footprint_of(settings, models=len(models)),
        shares=bool(able_to_share(settings, models)),
        seed=settings.seed,
        observed=settings.service.mode is Mode.OBSERVE,
        existing_usd_per_hour=settings.service.existing_usd_per_hour,
        telemetry=telemetry_of(settings.telemetry),
    )


def _check_described(settings: Settings, entry: ServedSettings) -> None:
    """Misconfigured, naming the missing file, where nothing says what a Python model needs or how fast it is."""
    if entry.backend.kind != "python":
        return
    name, target = entry.model, entry.backend.target
    beside = existing_source(target, entry.backend.folder).parent
    if name not in known_models(settings.models):
        if settings.models is not None:
            raise Misconfigured(f"{settings.models}: {unknown('model', name, load_models(settings.models))}")
        raise Misconfigured(
            f"nothing describes the model {name}: there is no {beside / MODEL_FILE} (`mark init {target}` "
            "writes it, docs/own-model.md says what it holds)"
        )
    if not settings.profiles and name not in shipped_sets():
        file = beside / PROFILE_FILE
        raise Misconfigured(
            f"the model {name} has no latency profile: there is no {file}, and `profiles` names none (`mark "
            f"profile --target {target} --model {name} --out {file}` measures it)"
        )


def _make(settings: Settings, entry: ServedSettings, service: str, known: Mapping[str, Tensors]) -> LiveModel:
    _check_described(settings, entry)
    policy = settings.policies[0]
    chosen = chosen_policies(settings)
    assembly = Assembly(replace(chosen, model=sized_model(settings), variants=_wishes(settings, entry)))
    history = _history(settings, entry)
    bundle = assembly.bundle(policy, assembly.ingredients(history), chosen_overrides(settings))
    if bundle.controller.planner == OWN:
        raise Misconfigured(
            f"{policy} is an own policy, which only replays run (mark simulate): name one of `mark policies`"
        )
    if bundle.is_packed:
        raise Misconfigured(f"{policy} is for replays (mark simulate): name a policy that rents instances")
    inputs, outputs = known.get(entry.model) or tensors_of(entry.backend, entry.model)
    controller, overflow = bundle.controller, bundle.controller.overflow
    if settings.service.mode is Mode.OBSERVE:  # nobody is answered: nothing overflows, and nothing is seen to miss
        controller, overflow = replace(controller, monitor=None), None
        bundle = replace(bundle, controller=controller)
    assumed_rps = _expected_rps(entry) if settings.trace.file is None else None
    if assumed_rps is not None:
        controller = replace(controller, settle_s=HOUR_S)
        bundle = replace(bundle, controller=controller)
    offerings = {offering.name: offering for offering in (*controller.offerings, *controller.fallbacks)}
    if controller.standby is not None:
        offerings[controller.standby.offering.name] = controller.standby.offering
    central = chosen_central(settings, overflows=overflow is not None)
    if central is not None and central.own is not None:
        raise Misconfigured(
            f"{central.own} is an own dispatch rule, which only replays run (mark simulate): name one of `mark "
            "policies`"
        )
    if central is not None and bundle.variants is not None:
        raise Misconfigured(
            f"{entry.model} has variants, which {central.rule} does not choose: let dispatch name a rule that "
            f"chooses them or one that routes ({', '.join(Routing)})"
        )
    if overflow is not None and bundle.variants is not None and bundle.variants.dispatch.is_central:
        raise Misconfigured(
            f"{entry.model}: Lambda answers nothing that waits in one queue for all instances, as "
            f"{bundle.variants.dispatch} has: leave it out with offerings: {{overflow: false}}"
        )
    _check_streams(entry, controller.slo, central is not None, bundle.variants is not None)
    if overflow is not None and has_packages(entry.backend):
        raise Misconfigured(
            f"{entry.model} has a {REQUIREMENTS}, which functions of Lambda do not install: serve it with "
            "offerings: {overflow: false}"
        )
    served = ServedModel(
        model=chosen.model,
        slo=controller.slo,
        dispatch=bundle.dispatch,
        offerings=tuple(offerings[name] for name in sorted(offerings)),
        backend=backend_spec(entry.backend),
        overflow=overflow,
        central=central,
        function=f"mark-{service}-{assembly.spec.model.name}",
        inputs=inputs,
        outputs=outputs,
        variant_serving=bundle.variants,
        crossing_usd=controller.crossing_usd,
    )
    return LiveModel(
        served=served,
        bundle=bundle,
        setup=ForecasterSetup(history=history, seed=settings.seed, cache_dir=usable_cache()),
        prices=assembly.prices,
        notes=(*assembly.supply.warnings, *(f"stand-in profile of {text}" for text in assembly.supply.stand_ins)),
        excuses=assembly.supply.excuses,
        assumed_rps=assumed_rps,
        team=entry.team if entry.sharing is Sharing.TEAM else "",
        alone=entry.sharing is Sharing.ALONE or assembly.spec.model.sizes is not None,
    )


def _check_streams(entry: ServedSettings, slo: Slo, has_queue: bool, has_variants: bool) -> None:
    """Refuse what does not go with streams, or not without them. Errors: Misconfigured."""
    name = entry.model
    if entry.backend.streams and has_packages(entry.backend):
        raise Misconfigured(STREAMS_IN_AGENT.format(name=name))
    if not entry.backend.streams:
        if slo.first_byte_s is not None:
            raise Misconfigured(f"{name} does not stream: set backend.streams, or objective.measured to answer")
        return
    if entry.backend.kind == "tf-serving":
        raise Misconfigured(f"{name} cannot stream: TF Serving answers whole; leave backend.streams out")
    if has_queue:
        raise Misconfigured(f"{name} streams, and a central queue serves batches: let dispatch name another rule")
    if has_variants:
        raise Misconfigured(f"{name} streams, and variants are chosen by the batch: give it none")


def _wishes(settings: Settings, entry: ServedSettings) -> VariantWishes | None:
    """Wishes for the model's variants; None for a backend that has one. Errors: Misconfigured."""
    wishes, backend = chosen_variants(settings), entry.backend
    if backend.kind == "emulated" or (backend.kind == "python" and can_switch(backend)):
        return replace(wishes, read_policy=policy_reader(settings))
    if wishes != VariantWishes():
        lacks = "its class has no method switch(variant)" if backend.kind == "python" else "its server runs one"
        raise Misconfigured(
            f"{entry.model} cannot choose variants: {lacks}; leave objective.accuracy_floor out, and let dispatch "
            f"name a rule that routes ({', '.join(Routing)})"
        )
    return None


def _history(settings: Settings, entry: ServedSettings) -> Demand:
    """The trace's past, or an hour of the expected load, spread as independent requests are."""
    if settings.trace.file is not None:
        workload = chosen_workload(settings)
        return workload.history(workload.whole_seconds[0], KEEP_HISTORY)
    mean = _expected_rps(entry) * WINDOW_S
    windows = stream(settings.seed, "expected load").poisson(mean, size=(EXPECTED_UNITS, int(UNIT_S / WINDOW_S)))
    units = [unit_of_windows(UNIT_S * at, counts.tolist()) for at, counts in enumerate(windows)]
    return Demand(
        end_at=UNIT_S * EXPECTED_UNITS,
        mean_rps=tuple(unit.mean_rps for unit in units),
        max_rps=tuple(unit.max_rps for unit in units),
    )


def _expected_rps(entry: ServedSettings) -> float:
    return entry.expected_rps or EXPECTED_RPS
