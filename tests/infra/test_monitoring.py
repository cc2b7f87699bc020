"""Grafana's dashboards and Prometheus' rules: of metrics that exist, and read by Prometheus itself."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlencode

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mark.report.live.status_metrics import service_metrics
from tests.real_prometheus import needs_prometheus, prometheus
from tests.report.live.fakes import busy_model, status
from tests.serving.harness import Client, live, run, until

INFRA = Path(__file__).parents[2] / "infra"
BOARDS = sorted((INFRA / "grafana").glob("*.json"))
COLUMNS = 24
"""Of Grafana's grid."""
RULES = INFRA / "prometheus" / "rules.yaml"
UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")
NAMES = re.compile(r"\bmark_[a-z0-9_]+")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def queries() -> Iterator[str]:
    """Queries of all dashboards, as they are in the files."""
    for path in BOARDS:
        panels = json.loads(path.read_text())["panels"]
        yield from (target["expr"] for panel in panels for target in panel.get("targets", ()))


def rules() -> list[dict[str, str]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def names_of(page: str) -> set[str]:
    """Names of the series that a page of metrics has, by its lines of types."""
    typed = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
    return {name + suffix for name, kind in typed for suffix in SUFFIXES.get(kind, ("",))}


@pytest.fixture(scope="module")
def exist() -> set[str]:
    """Names of the metrics of a status page, a gateway and an agent."""

    async def of_processes(found: set[str]) -> None:
        async with live() as running:
            gateway = (await running.ask("/metrics", None, "GET")).body.decode()
            port = running.agents["i-0"].http_port
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            agent = (await client.ask("/metrics", None, "GET")).body.decode()
            await client.close()
        found |= names_of(gateway) | names_of(agent)

    found = names_of(service_metrics(status(busy_model())).decode())
    run(of_processes(found))
    return found


def test_dashboards_and_rules_name_only_metrics_that_exist(exist: set[str]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = [*queries(), *(rule["expr"] for rule in rules())]
    assert len(asked) > 40
    assert {name for query in asked for name in NAMES.findall(query)} <= exist
    assert {name for query in asked for name in re.findall(r"\bmark:[a-z0-9_:]+", query)} <= recorded


def read_by_grafana_s_types(document: dict[str, Any]) -> Dashboard:
    """The dashboard as Grafana's own types have it, down to the options of its panels and its queries."""
    register_default_plugins()
    return Dashboard.from_json(document)


def misfits(value: object, at: str = "dashboard") -> Iterator[str]:
    """Values that are not of the type which Grafana's schema gives their field: the SDK is generated from that."""
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from misfits(inner, f"{at}[{place}]")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models"):
        for name, kind in get_type_hints(type(value)).items():
            inner = getattr(value, name)
            try:
                TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(inner)
            except ValidationError as error:
                yield f"{at}.{name}: {error.errors()[0]['msg']}"
            yield from misfits(inner, f"{at}.{name}")


def written_again(document: dict[str, Any]) -> dict[str, Any]:
    """What the SDK writes of what it read, without the empty `custom` that it adds to panels of some kinds."""
    text = json.dumps(read_by_grafana_s_types(document), cls=JSONEncoder)
    again: dict[str, Any] = json.loads(text)
    for panel in again["panels"]:
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if defaults.get("custom") == {}:
            del defaults["custom"]
    return again


def test_grafana_s_schema_has_every_key_and_value_of_the_dashboards() -> None:
    for path in BOARDS:
        document = json.loads(path.read_text())
        assert list(misfits(read_by_grafana_s_types(document))) == []
        assert written_again(document) == document


def test_panels_have_units_legends_and_places_of_their_own() -> None:
    for path in BOARDS:
        document = json.loads(path.read_text())
        panels = [panel for panel in document["panels"] if panel["type"] != "row"]
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
        assert len(places) == len(panels)
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS for panel in panels)
        assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
        assert all(target["legendFormat"] for panel in panels for target in panel["targets"])
        assert [one["name"] for one in document["templating"]["list"]] == ["source", "model"]


@needs_prometheus
def test_prometheus_reads_the_rules_and_they_ring_when_they_should(tmp_path: Path) -> None:
    told = tmp_path / "rules_test.yaml"
    told.write_text(UNIT_TESTS.read_text().replace("RULES", str(RULES)))
    command = [shutil.which("promtool") or "", "test", "rules", str(told)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Prometheus' own
    assert said.returncode == 0, said.stdout + said.stderr
    tried = set(re.findall(r"alertname: (\w+)", UNIT_TESTS.read_text()))
    assert tried == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.slow
@needs_prometheus
def test_a_prometheus_scrapes_a_gateway_loads_the_rules_and_answers_each_panel(tmp_path: Path) -> None:
    asked = [query.replace("$__rate_interval", "1m").replace("$model", ".*") for query in queries()]

    async def test() -> None:
        async with live() as running:
            assert (await running.ask()).status == 200
            config = {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(RULES)],
                "scrape_configs": [
                    {"job_name": "mark", "static_configs": [{"targets": [f"127.0.0.1:{running.port}"]}]}
                ],
            }
            (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
            process, api = await prometheus(tmp_path)
            try:

                async def counted() -> bool:
                    found = await answer(api, "query", query="mark_gateway_responses_total")
                    return bool(found["result"])

                await until(counted)
                for query in asked:
                    assert await answer(api, "query", query=query) is not None, query
                loaded = (await answer(api, "rules"))["groups"]
                assert {rule["name"] for group in loaded for rule in group["rules"]} == {
                    rule.get("alert") or rule["record"] for rule in rules()
                }
            finally:
                process.terminate()
                await process.wait()

    run(test())


async def answer(api: str, path: str, **parameters: str) -> Any:
    """The data of an answer; an error of Prometheus' raises."""

    def ask() -> Any:
        with urllib.request.urlopen(f"{api}/{path}?{urlencode(parameters)}", timeout=60) as reply:  # noqa: S310 - on loopback
            return json.load(reply)["data"]

    return await asyncio.to_thread(ask)
