"""Lists of names for settings and flags: policies, forecasters, dispatch rules, models and profile sets."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from mark.catalog.load import ASSUMED_PREFIX, ProfileSet, known_models, load_profiles, shipped_sets
from mark.catalog.shipped_models import ShippedModel, shipped_models
from mark.catalog.type_sets import TYPE_SETS
from mark.config.settings import Settings
from mark.dispatch.rules import rule_names
from mark.domain.models.objective import ModelSpec
from mark.plugins.load import forecaster_names, own_policy_names
from mark.policies.bundles import policy_names
from mark.report.formatting import format_duration, percent
from mark.report.tables import make_table, texts
from mark.report.terminal import show, show_json

ABOUT = {
    "hedged": "ours, the default: rents each level of load while it pays under the forecast's quantiles; standbys",
    "fleet-per-model": "hedged with instances of its own for each model of a service: what sharing is measured by",
    "mark": "the paper: greedy plan, LSTM forecast, Bouncer to Lambda, SLO monitor, standbys on spot",
    "greedy-oracle": "mark with a perfect forecast",
    "milp": "mark with the exact plan instead of the greedy one; not in all",
    "kairos": "a pool of unlike types within an hourly budget, whatever the load; not in all",
    "sagemaker": "managed endpoint: one type, target tracking, its price premium",
    "sagemaker-fast": "sagemaker on its metric of 10 s, concurrency",
    "sagemaker-tuned": "sagemaker with another metric or over-provisioning; tuned; not in all",
    "sagemaker-pools": "sagemaker-tuned on up to five types by priority (instance pools); tuned; not in all",
    "reactive": "one type, scaled on what was seen in two windows (Knative)",
    "autoscaler": "one type, batches, a queue limit, either market; tuned on the load before the run; not in all",
    "autoscaler-spill": "autoscaler with our Bouncer and Lambda; tuned; not in all",
    "predictive": "EC2 Auto Scaling: a forecast by the hour beside target tracking; tuned; not in all",
    "ema-headroom": "a moving average by hour of day x headroom, either market; tuned; not in all",
    "spothedge": "SkyServe: spot over zones, spares, on demand for what is not ready; tuned; not in all",
    "kubernetes-packed": "autoscaled pods of all models on nodes that Karpenter packs; tuned; not in all",
    "kubernetes-packed-spill": "kubernetes-packed with our Bouncer and Lambda; tuned; not in all",
    "sagemaker-components": "SageMaker's inference components, copies on one endpoint; tuned; not in all",
    "sagemaker-mme": "SageMaker's multi-model endpoint, models loaded as they are asked for; tuned; not in all",
    "managed-instances": "Lambda Managed Instances: one type, a CPU target, its fees; tuned; not in all",
    "static-peak": "one type, sized once for the highest minute of the history",
    "serverless": "everything on Lambda, with environments provisioned by the hour; tuned; not in all",
    "lambda-only": "everything on Lambda",
    "lambda-pinged": "lambda-only with a ping each 5 minutes that keeps one environment warm",
}
"""One line a policy; docs/decisions has the whole."""


def list_policies(*, as_json: bool) -> None:
    """Print policies, forecasters and dispatch rules."""
    names = [
        {"name": name, "about": ABOUT.get(name, "an installed package's")}
        for name in (*policy_names(), *own_policy_names())
    ]
    if as_json:
        rules = list(rule_names())
        show_json({"policies": names, "forecasters": list(forecaster_names()), "dispatch": rules})
        return
    grid = Table.grid(padding=(0, 2))
    for item in names:
        grid.add_row(item["name"], item["about"])
    show(grid, "")
    show(f"forecasters: {', '.join(forecaster_names())} (or module:attribute, or path/file.py:Name)")
    show(f"dispatch: {', '.join(rule_names())} (or module:attribute, or path/file.py:Name)")


def list_models(settings: Settings, *, as_json: bool) -> None:
    """Print models with their objectives and profiled types, and those that come ready to be served."""
    found = [
        (spec, load_profiles(spec.name, settings.profiles)) for spec in known_models(settings.models).values()
    ]
    assumed = [name for name in shipped_sets() if name.startswith(ASSUMED_PREFIX)]
    if as_json:
        show_json(
            {
                "models": [_model_object(*pair) for pair in found],
                "to_serve": [_shipped_object(model) for model in shipped_models()],
                "assumed_sets": assumed,
                "type_sets": list(TYPE_SETS),
            }
        )
        return
    table = _table("model", "objective", "memory", "profiled on")
    for spec, profiles in found:
        table.add_row(*_needs(spec), ", ".join(_types(profiles)))
    show(table, "", f"assumed profile sets, used only when named with --profiles: {', '.join(assumed)}")
    show(f"sets of types, for --types: {', '.join(TYPE_SETS)} (docs/hardware.md)")
    if served := shipped_models():
        _show_shipped(served)


def _show_shipped(served: Sequence[ShippedModel]) -> None:
    table = _table("to serve, with weights", "objective", "memory", "backend.target")
    for model in served:
        table.add_row(*_needs(model.spec), model.target)
    first = served[0]
    backend = f'{{kind: python, target: "{first.target}"}}'
    show(
        "",
        table,
        "",
        "they answer for real, in torch: `mark up` without a config serves digits; any, with --config mark.yaml:",
        f"  service: {{serve: [{{model: {first.spec.name}, backend: {backend}}}]}}",
        f"what each does, and does badly, is described by the card in its folder, such as {first.card}",
    )


def _table(*columns: str) -> Table:
    return make_table(texts(*columns), gap=1)


def _needs(spec: ModelSpec) -> tuple[str, str, str]:
    objective = f"{percent(spec.slo.target)} in {format_duration(spec.slo.latency_s)}"
    return spec.name, objective, f"{spec.memory_gib:g} GiB"


def _types(profiles: ProfileSet) -> list[str]:
    return [*profiles.instance_types, *(["lambda"] if profiles.lambda_ else [])]


def _shipped_object(model: ShippedModel) -> dict[str, object]:
    return {**_model_object(model.spec, model.profiles), "target": model.target, "card": str(model.card)}


def _model_object(spec: ModelSpec, profiles: ProfileSet) -> dict[str, object]:
    return {
        "name": spec.name,
        "slo": {"latency_ms": round(spec.slo.latency_s * 1000, 9), "target": spec.slo.target},
        "memory_gib": spec.memory_gib,
        "payload_mib": spec.payload_mib,
        "profiled_on": _types(profiles),
    }
