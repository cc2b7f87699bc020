"""Grafana's dashboards, `infra/grafana/*.json`, built with Grafana's own library: `make docs` writes them.

Every query names only metrics that the status page, gateways or agents have (tests/infra/test_monitoring.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh, VariableSort

FOLDER = Path(__file__).parents[1] / "infra" / "grafana"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
OF_MODEL = '{model=~"$model"}'
WIDTH, HEIGHT = 24, 8
"""Grafana's grid has 24 columns."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: queries by the name that a legend shows, and its unit in Grafana's words.

    `width` of 24 columns; with `stacked` the lines are areas on each other; `number` shows the last value alone.
    """

    title: str
    about: str
    queries: Mapping[str, str]
    unit: str = "short"
    width: int = 12
    stacked: bool = False
    number: bool = False
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: rows of panels by title, and the metric whose models one chooses from."""

    title: str
    about: str
    models_of: str
    rows: Mapping[str, Sequence[Panel]]


def _rate(name: str, by: str = "", matching: str = OF_MODEL) -> str:
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({name}{matching}[$__rate_interval]))"


def _sum(name: str, by: str) -> str:
    return f"sum by ({by}) ({name}{OF_MODEL})"


def _latency(quantile: float) -> str:
    buckets = f"sum by (le) (rate(mark_gateway_latency_seconds_bucket{OF_MODEL}[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {buckets})"


SERVICE = Board(
    title="MArk: a service",
    about="What a service attains, carries and costs, as its status page tells it.",
    models_of="mark_objective_target",
    rows={
        "Now": (
            Panel(
                "Answered in time",
                "Share of the requests since the service began, beside its target.",
                {
                    "attained": f"min(mark_objective_attained{OF_MODEL})",
                    "target": f"max(mark_objective_target{OF_MODEL})",
                },
                "percentunit",
                6,
                number=True,
            ),
            Panel(
                "Latency, 98 %",
                "Of what was answered, by the slowest model.",
                {"p98": 'max(mark_latency_seconds{model=~"$model", quantile="0.98"})'},
                "s",
                6,
                number=True,
            ),
            Panel(
                "Spent an hour",
                "At present, with its share of what stands around the fleet.",
                {"now": f"sum(mark_usd_per_hour{OF_MODEL})"},
                "currencyUSD",
                6,
                number=True,
            ),
            Panel(
                "Controller silent",
                "Since its last tick. It ticks every minute.",
                {"silent": "max(mark_controller_silent_seconds)"},
                "s",
                6,
                number=True,
            ),
        ),
        "Load and capacity": (
            Panel(
                "Requests/s",
                "What comes, what is expected, what the plan is for and what it carries.",
                {
                    "arrivals": 'sum(mark_arrivals_rps{model=~"$model", span="now"})',
                    "highest forecast": f"sum(mark_forecast_max_rps{OF_MODEL})",
                    "planned for": f"sum(mark_plan_required_rps{OF_MODEL})",
                    "plan carries": f"sum(mark_plan_capacity_rps{OF_MODEL})",
                    "ready instances carry": f"sum(mark_capacity_rps{OF_MODEL})",
                },
                "reqps",
            ),
            Panel(
                "Instances",
                "By offering, role and state.",
                {"{{offering}} {{role}} {{state}}": _sum("mark_fleet_instances", "offering, role, state")},
                stacked=True,
            ),
        ),
        "Answers": (
            Panel(
                "Requests/s, by who answered",
                "Instances, woken standbys, Lambda; shed ones were answered 503.",
                {"{{by}}": _rate("mark_requests_total", "by")},
                "reqps",
                stacked=True,
            ),
            Panel(
                "Late and failed",
                "Share of the answers that came late, and of the requests that failed.",
                {
                    "late": f"{_rate('mark_late_total')} / {_rate('mark_requests_total')}",
                    "failed": f"{_rate('mark_failed_total')} / {_rate('mark_requests_total')}",
                },
                "percentunit",
            ),
            Panel(
                "Latency",
                "Of what was answered.",
                {"{{model}} {{quantile}}": f"mark_latency_seconds{OF_MODEL}"},
                "s",
            ),
            Panel(
                "Accuracy",
                "Mean of the variants that answered, of models that have variants.",
                {
                    "{{model}}, the last 5 s": f"mark_accuracy_now{OF_MODEL}",
                    "{{model}}": f"mark_accuracy{OF_MODEL}",
                },
                "percentunit",
                most=1.0,
            ),
        ),
        "Cost": (
            Panel(
                "USD an hour, by part",
                "From what was spent in the hour before.",
                {"{{component}}": f"sum by (component) (delta(mark_cost_usd{OF_MODEL}[1h]))"},
                "currencyUSD",
                stacked=True,
            ),
            Panel(
                "Lambda",
                "Invocations/s, and those that started cold.",
                {
                    "invocations": _rate("mark_lambda_invocations_total"),
                    "cold": _rate("mark_lambda_cold_starts_total"),
                },
                "reqps",
            ),
        ),
    },
)

DATA_PLANE = Board(
    title="MArk: gateways and agents",
    about="The way of a request: gateways, the agents on instances, Lambda.",
    models_of="mark_gateway_agents",
    rows={
        "Gateways": (
            Panel(
                "Responses/s",
                "By the server that gave them.",
                {"{{by}}": _rate("mark_gateway_responses_total", "by")},
                "reqps",
                stacked=True,
            ),
            Panel(
                "Not as it should be",
                "Requests/s that came late, were shed, failed or went to a second agent.",
                {
                    "late": _rate("mark_gateway_late_total"),
                    "shed": _rate("mark_gateway_shed_total"),
                    "failed": _rate("mark_gateway_failed_total"),
                    "sent again": _rate("mark_gateway_redispatched_total"),
                    "refused by the model": _rate("mark_gateway_rejected_total"),
                },
                "reqps",
            ),
            Panel(
                "Latency",
                "From a request's arrival to its answer.",
                {"50 %": _latency(0.5), "95 %": _latency(0.95), "99 %": _latency(0.99)},
                "s",
            ),
            Panel(
                "Missed",
                "Share of the requests that were late, shed or failed, beside what the objective forgives.",
                {
                    "{{model}}": f"mark:missed:share5m{OF_MODEL}",
                    "{{model}} forgiven": f"1 - max by (model) (mark_gateway_objective_target{OF_MODEL})",
                },
                "percentunit",
            ),
            Panel(
                "In flight",
                "Requests at agents and at Lambda.",
                {
                    "agents": f"sum(mark_gateway_in_flight{OF_MODEL})",
                    "Lambda": f"sum(mark_gateway_lambda_in_flight{OF_MODEL})",
                },
            ),
            Panel(
                "Agents of each gateway",
                "That accept requests.",
                {"{{instance}} {{gateway}} {{model}}": f"mark_gateway_agents{OF_MODEL}"},
            ),
            Panel(
                "Connections and bodies",
                "Clients connected, and bytes of request bodies in memory.",
                {
                    "{{instance}} {{gateway}}": "mark_gateway_connections",
                    "{{instance}} {{gateway}} bytes": "mark_gateway_body_bytes",
                },
            ),
        ),
        "Agents": (
            Panel(
                "Batches",
                "Requests in a batch, on average.",
                {
                    "{{instance}}": f"{_rate('mark_agent_responses_total', 'instance')} / "
                    f"{_rate('mark_agent_batches_total', 'instance')}"
                },
            ),
            Panel(
                "Busy",
                "Share of the time in which a batch runs.",
                {"{{instance}}": f"rate(mark_agent_busy_seconds_total{OF_MODEL}[$__rate_interval])"},
                "percentunit",
                most=1.0,
            ),
            Panel(
                "Waiting",
                "Requests in the agents' queues, and those that the Bouncer sent on, a second.",
                {
                    "waiting": f"sum(mark_agent_waiting{OF_MODEL})",
                    "bounced/s": _rate("mark_agent_bounced_total"),
                },
            ),
            Panel(
                "Time of a batch",
                "As each agent has measured it.",
                {
                    "{{instance}} of one": f"mark_agent_single_seconds{OF_MODEL}",
                    "{{instance}} full": f"mark_agent_full_batch_seconds{OF_MODEL}",
                },
                "s",
            ),
            Panel(
                "Unexpected exceptions/s",
                "The logs have them as `internal error`.",
                {
                    "gateways": _rate("mark_gateway_internal_errors_total", matching=""),
                    "agents": _rate("mark_agent_internal_errors_total"),
                },
                "cps",
                WIDTH,
            ),
        ),
    },
)
BOARDS = {"service": SERVICE, "data-plane": DATA_PLANE}


def files() -> Iterator[tuple[Path, str]]:
    """Each dashboard's file and its text."""
    for name, board in BOARDS.items():
        yield FOLDER / f"{name}.json", built(name, board)


def built(name: str, board: Board) -> str:
    """A dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"mark-{name}")
        .description(board.about)
        .tags(["mark"])
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("model")
            .label("Model")
            .datasource(SOURCE)
            .query(f"label_values({board.models_of}, model)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
        )
    )
    for title, panels in board.rows.items():
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(_panel(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _panel(told: Panel) -> stat.Panel | timeseries.Panel:
    made: stat.Panel | timeseries.Panel
    if told.number:
        made = stat.Panel().height(HEIGHT // 2).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    else:
        tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
        legend = (
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        made = timeseries.Panel().height(HEIGHT).min(0.0).tooltip(tooltip).legend(legend)
        if told.most is not None:
            made = made.max(told.most)
        if told.stacked:
            made = made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40.0)
    made = made.title(told.title).description(told.about).unit(told.unit).span(told.width).datasource(SOURCE)
    for place, (legend_name, query) in enumerate(told.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend_name).ref_id(chr(ord("A") + place))
        made = made.with_target(target)
    return made


def write() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in files():
        path.write_text(text)
