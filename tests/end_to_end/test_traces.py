"""A service of `mark up` whose requests are traced from a client to the model, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.rig import LIGHT, Rig, eventually, fetch, rig
from tests.end_to_end.test_nothing_lost import MODEL
from tests.telemetry.receiver import Receiver, receiver

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
KEY = "a-key-of-the-collector"


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, collector: Receiver) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("traces"), "traces") as made:
        headers = made.home / "headers"
        headers.write_text(f"x-key={KEY}\n")
        headers.chmod(0o600)
        telemetry = (
            f"telemetry:\n  endpoint: {collector.url}\n  headers_file: {headers}\n"
            "  traces: {ratio: 1.0e-9}\n  metrics: {every_s: 0.5}\n"
        )
        made.up(LIGHT.format(name=made.name) + telemetry)
        yield made
        made.down()


def test_a_clients_trace_reaches_the_model(live: Rig, collector: Receiver) -> None:
    (model,) = [one for one in live.running["models"] if one["name"] == MODEL]
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    url = f"{live.running['gateway']}/v2/models/{MODEL}/infer"
    status, reply, _ = fetch(url, model["example"], more=headers)
    assert status == 200, reply
    eventually(lambda: {"batch", f"infer {MODEL}"} <= {span.name for span in collector.spans})
    infer, agent, batch = (collector.one(name) for name in (f"infer {MODEL}", "agent", "batch"))
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert (infer.parent_id, agent.parent_id, batch.parent_id) == (SPAN, infer.span_id, agent.span_id)
    assert collector.one("model").parent_id == batch.span_id
    assert (infer.resource["service.name"], batch.resource["service.name"]) == ("mark-gateway", "mark-agent")
    assert batch.attributes["mark.instance"] == agent.attributes["mark.instance"]


def test_metrics_come_and_the_key_from_gateways_alone(live: Rig, collector: Receiver) -> None:
    eventually(lambda: {"mark_gateway_responses", "mark_agent_responses"} <= collector.metrics.keys())
    keys = {headers.get("x-key") for headers in collector.headers}
    assert keys == {KEY, None}
    logs = "".join(path.read_text() for path in live.folder.rglob("*.log"))
    assert logs
    assert KEY not in logs
