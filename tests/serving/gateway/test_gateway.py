"""A gateway with real sockets: what clients get, and what becomes of requests that cannot go the usual way."""

from __future__ import annotations

import json
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.domain.billing.spending import SpendingLimit
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import Warmed
from mark.ports import InferReply
from mark.serving.gateway.config import TokenReader
from mark.serving.http.limits import HttpLimits
from tests.serving.fakes import FakeLambda
from tests.serving.harness import (
    BODY,
    INFER,
    LAMBDA,
    PATIENT_S,
    SLOW_LAMBDA,
    Live,
    live,
    served,
    until,
)


async def test_a_request_is_answered_and_says_by_whom() -> None:
    async with live() as running:
        reply = await running.ask(x_mark_request_id="abc", traceparent="00-1-2-01")

        assert reply.status == 200
        assert reply.headers["x-mark-served-by"] == "instance"
        assert reply.headers["x-mark-request-id"] == "abc"
        assert reply.document["outputs"][0]["data"] == [0.0, 0.0]


async def test_an_id_is_made_where_there_is_none_and_standbys_are_named() -> None:
    async with live(agents=0) as running:
        await running.add_agent("i-s", role=Role.STANDBY)
        first, second = await running.ask(), await running.ask()

        assert first.headers["x-mark-request-id"] != second.headers["x-mark-request-id"]
        assert first.headers["x-mark-served-by"] == "standby"


@pytest.mark.parametrize(
    ("path", "status", "key"),
    [
        ("/v2/health/live", 200, "live"),
        ("/v2/health/ready", 200, "ready"),
        ("/ping", 200, "ready"),
        ("/v2", 200, "extensions"),
        ("/v2/models/echo", 200, "inputs"),
        ("/v2/models/echo?a=b", 200, "inputs"),
        ("/v2/models/%65cho", 200, "inputs"),
        ("/v2/models/echo/versions/1/ready", 200, "ready"),
        ("/v2/models/other", 404, "error"),
        ("/v2/models/echo/infer", 405, "error"),
    ],
)
async def test_documents(path: str, status: int, key: str) -> None:
    async with live() as running:
        reply = await running.ask(path, None, "GET")
        assert reply.status == status
        assert key in reply.document
        assert (await running.ask(path, None, "HEAD")).body == b""


async def test_without_anyone_to_serve_it_is_not_ready_and_sheds() -> None:
    async with live(agents=0) as running:
        assert (await running.ask("/v2/health/ready", None, "GET")).status == 503
        reply = await running.ask()

        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        assert "error" in reply.document


async def test_a_paused_service_says_so_and_calls_no_lambda() -> None:
    async def answered(running: Live) -> bool:
        return (await running.ask()).status == 200

    async def paused(running: Live) -> bool:
        reply = await running.ask()
        return reply.status == 503 and "paused" in reply.document["error"]

    async with live(served(overflow=LAMBDA), agents=0, overflow=FakeLambda()) as running:
        assert (await running.ask()).headers["x-mark-served-by"] == "lambda"
        running.store.spending = SpendingLimit.PAUSE
        await until(lambda: paused(running))
        calls = len(running.overflow.calls)
        assert (await running.ask()).status == 503
        assert len(running.overflow.calls) == calls

        running.store.spending = SpendingLimit.NONE
        await until(lambda: answered(running))


async def test_a_request_that_is_wrong_gets_the_models_400() -> None:
    async with live() as running:
        reply = await running.ask(body=b"{}")

        assert reply.status == 400
        assert "at least one tensor" in reply.document["error"]


@pytest.mark.parametrize(
    ("status", "counted"),
    [(200, "answers"), (302, "answers"), (400, "rejected"), (422, "rejected"), (408, "failed"), (429, "failed"),
     (500, "failed")],
)  # fmt: skip
async def test_a_wrong_request_is_no_answer_in_time(status: int, counted: str) -> None:
    reply = InferReply(status=status, content_type="text/plain", body=b"so it is")

    async with live() as running:
        running.agents["i-0"].backend.answers = reply
        for _ in range(3):
            assert (await running.ask()).status == status

        served_by = 'mark_gateway_responses_total{by="instance",model="echo"}'
        names = {
            "answers": served_by,
            **{name: f"mark_gateway_{name}_total" for name in ("rejected", "failed")},
        }
        for name, metric in names.items():
            assert await running.metric(metric) == (3 if name == counted else 0)
        assert await running.metric("mark_gateway_latency_seconds_count") == (3 if counted == "answers" else 0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_encoding": "br"}, 415),
        ({"content_encoding": "gzip"}, 400),
        ({"x_mark_deadline_ms": "soon"}, 400),
        ({"inference_header_content_length": "9999"}, 400),
        ({"inference_header_content_length": "-1"}, 400),
        ({"x_mark_variant": "large"}, 404),
        ({"x_mark_request_id": "x" * 129}, 400),
        ({"content_type": "x" * 256}, 400),
        ({"traceparent": "x" * 300}, 200),
    ],
)
async def test_headers_that_cannot_be_meant(headers: dict[str, str], status: int) -> None:
    async with live() as running:
        assert (await running.ask(**headers)).status == status
        assert (await running.ask()).status == 200


async def test_the_page_of_metrics_is_prometheus_text_with_a_histogram() -> None:
    async with live() as running:
        assert (await running.ask()).status == 200
        page = (await running.ask("/metrics", None, "GET")).body.decode()
        samples = {
            (sample.name, sample.labels.get("le")): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

        assert samples["mark_gateway_latency_seconds_bucket", "+Inf"] == 1
        assert samples["mark_gateway_latency_seconds_count", None] == 1
        assert 0 < samples["mark_gateway_latency_seconds_sum", None] < 60


@pytest.mark.parametrize("deadline", ["0", "000", "-1", "nan", "inf", "1e3", "0.5", "1000000000", ""])
async def test_a_deadline_that_nothing_can_meet_or_that_is_no_number_is_refused(deadline: str) -> None:
    async with live() as running:
        reply = await running.ask(x_mark_deadline_ms=deadline)

        assert reply.status == 400
        assert reply.document["error"] == (
            "x-mark-deadline-ms must be a whole number of milliseconds from 1 to 999999999"
        )


async def test_a_variant_is_named_by_path_or_header() -> None:
    async with live(served(variants=("small", "large"))) as running:
        assert (await running.ask("/v2/models/echo/versions/small/infer")).status == 200
        assert (await running.ask(x_mark_variant="large")).status == 200
        assert (await running.ask("/v2/models/echo/versions/small/infer", x_mark_variant="large")).status == 400
        assert (await running.ask("/v2/models/echo/versions/1/infer")).status == 404
        paths = [request.path for request in running.agents["i-0"].backend.requests]

        assert paths == ["/v2/models/echo/versions/small/infer", "/v2/models/echo/versions/large/infer"]


async def test_a_token_is_required_but_for_health() -> None:
    async with live(token="secret") as running:
        assert (await running.ask("/v2/health/live", None, "GET")).status == 200
        assert (await running.ask()).status == 401
        assert (await running.ask(authorization="Bearer wrong")).status == 401
        assert (await running.ask("/metrics", None, "GET")).status == 401

        async def served_() -> bool:
            return (await running.ask(authorization="Bearer secret")).status == 200

        await until(served_)


async def test_tokens_follow_each_other_on_connections_that_stay_open() -> None:
    valid, failing = ["old"], [False]

    def read() -> list[str]:
        if failing[0]:
            raise RetryLater("the secret cannot be read")
        return valid

    tokens = TokenReader(read=read, each_s=0.01, again_s=0.01)
    async with live(token="old", tokens=tokens) as running:
        clients = {name: await running.client() for name in ("old", "new")}

        async def statuses() -> dict[str, int]:
            for name, client in clients.items():
                client.send(authorization=f"Bearer {name}")
            return {name: (await client.read()).status for name, client in clients.items()}

        async def come(expected: dict[str, int]) -> None:
            async def there() -> bool:
                return await statuses() == expected

            await until(there)

        await come({"old": 200, "new": 401})
        valid[:] = ["old", "new"]
        await come({"old": 200, "new": 200})
        failing[0] = True
        assert await statuses() == {"old": 200, "new": 200}
        valid[:], failing[0] = ["new"], False
        await come({"old": 401, "new": 200})
        for client in clients.values():
            await client.close()


async def test_a_repeated_id_gets_the_one_answer() -> None:
    async with live() as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        clients = [await running.client() for _ in range(2)]
        for client in clients:
            client.send(x_mark_request_id="same")
        await running.until_metric('mark_gateway_deduplicated_total{model="echo"}', 1)
        backend.free.set()
        replies = [await client.read() for client in clients]
        later = await running.ask(x_mark_request_id="same")
        for client in clients:
            await client.close()

        assert {reply.body for reply in [*replies, later]} == {later.body}
        assert len(backend.requests) == 1
        assert (await running.ask(body=b"{}", x_mark_request_id="same")).status == 409
        assert (await running.ask(x_mark_request_id="same", accept="application/octet-stream")).status == 409


async def test_a_client_that_hung_up_finds_its_answer() -> None:
    async with live(takes_s=0.05) as running:
        client = await running.client()
        client.send(x_mark_request_id="gone")
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 1)
        await client.close()
        reply = await running.ask(x_mark_request_id="gone")

        assert reply.status == 200
        assert len(running.agents["i-0"].backend.requests) == 1


async def test_a_model_may_forbid_to_run_a_request_again() -> None:
    async with live(served(redispatch=False)) as running:
        running.agents["i-0"].backend.free.clear()
        client = await running.client()
        client.send()
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 1)
        running.agents["i-0"].stop.set()

        assert (await client.read()).status == 502
        await client.close()


async def test_what_nobody_answers_in_the_services_own_time_is_504() -> None:
    async with live(served(dispatch=DispatchPolicy(give_up_s=0.2))) as running:
        running.agents["i-0"].backend.free.clear()
        assert (await running.ask()).status == 504


async def test_bounced_requests_go_to_lambda() -> None:
    overflow = FakeLambda()
    policy = DispatchPolicy(bounced=Bounced.LAMBDA)
    async with live(served(latency_s=0.05, dispatch=policy, overflow=LAMBDA), overflow=overflow) as running:
        reply = await running.ask(x_mark_deadline_ms="1")

        assert reply.headers["x-mark-served-by"] == "lambda"
        assert reply.document == {"from": "lambda"}
        assert overflow.calls[0][0] == "mark-echo"
        assert overflow.calls[0][1].body == BODY
        assert (await running.ask()).headers["x-mark-served-by"] == "instance"
        assert running.agents["i-0"].backend.batches == [1]
        await running.until_metric('mark_gateway_invocations_total{model="echo"}', 1)


@pytest.mark.parametrize(("share", "by"), [(0, None), (4, "lambda")], ids=["cold", "warmed"])
async def test_a_late_request_is_shed_unless_somebody_has_warmed_lambda(share: int, by: str | None) -> None:
    """Instance and cold environment are late both; a warm one answers in time."""

    async def _later(running: Live, count: int) -> bool:
        return running.store.asked_warmed > count

    policy = DispatchPolicy(late=Late.SHED)
    slow = served(dispatch=policy, latency_s=PATIENT_S, overflow=SLOW_LAMBDA, batch_s=(600.0,))
    async with live(slow, overflow=FakeLambda()) as running:
        running.store.warmings = (Warmed(model="echo", at=time.time(), share=share),)
        asked = running.store.asked_warmed
        await until(lambda: _later(running, asked + 1))
        reply = await running.ask()
        assert reply.headers.get("x-mark-served-by") == by
        assert reply.status == (503 if by is None else 200)


async def test_environments_that_are_gone_are_believed_warm_no_more() -> None:
    async def _believes(running: Live, warm: int) -> bool:
        await running.ask()  # so that there is something to report
        reports = running.store.reports
        return bool(reports) and reports[max(reports, key=lambda key: key[1])].models[0].lambda_warm == warm

    async with live(served(overflow=LAMBDA), overflow=FakeLambda()) as running:
        for at, share, anew_at, warm in ((1.0, 4, 0.0, 4), (2.0, 0, 2.0, 0), (3.0, 2, 2.0, 2)):
            now = time.time() + at
            told = Warmed(model="echo", at=now, share=share, anew_at=now if anew_at == at else anew_at)
            running.store.warmings = (told,)
            await until(lambda warm=warm: _believes(running, warm))


async def test_what_lambda_refuses_goes_where_it_finishes_first() -> None:
    overflow = FakeLambda()
    overflow.refuses = True
    policy = DispatchPolicy(bounced=Bounced.LAMBDA)
    async with live(served(dispatch=policy, overflow=LAMBDA), overflow=overflow) as running:
        reply = await running.ask(x_mark_deadline_ms="1")

        assert reply.headers["x-mark-served-by"] == "instance"
        assert len(overflow.calls) == 1


async def test_what_is_late_everywhere_is_served_or_shed_as_the_policy_says() -> None:
    async with live() as running:
        assert (await running.ask(x_mark_deadline_ms="1")).status == 200
    async with live(served(dispatch=DispatchPolicy(late=Late.SHED))) as running:
        assert (await running.ask(x_mark_deadline_ms="1")).status == 503


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_request_shed_because_lambda_is_cold_has_one_environment_warmed(refuses: bool) -> None:
    overflow = FakeLambda()
    overflow.refuses = refuses
    model = served(dispatch=DispatchPolicy(late=Late.SHED), latency_s=PATIENT_S, overflow=SLOW_LAMBDA)
    async with live(model, overflow=overflow, agents=0) as running:
        assert (await running.ask(x_mark_deadline_ms="1")).status == 503
        assert overflow.warmed == []
        assert (await running.ask()).status == 503
        assert overflow.warmed == ["mark-echo"]
        await running.until_metric('mark_gateway_lambda_in_flight{model="echo"}', 0)
        assert await running.metric('mark_gateway_cold_total{model="echo"}') == 0  # a ping is no request
        reply = await running.ask()

        assert reply.status == (503 if refuses else 200)
        assert len(overflow.warmed) == (2 if refuses else 1)


async def test_an_unexpected_error_in_the_adapter_to_lambda_leaves_no_request_unanswered() -> None:
    overflow = FakeLambda()
    overflow.fails = True
    async with live(served(overflow=LAMBDA), overflow=overflow, agents=0) as running:
        assert (await running.ask()).status == 502
        overflow.fails = False
        assert (await running.ask()).status == 200


@pytest.mark.parametrize(
    ("routing", "shares"),
    [
        (Routing.WEIGHTED, [2, 2, 2]),
        (Routing.LEAST_OUTSTANDING, [2, 2, 2]),
        (Routing.LEAST_FINISH, [4, 1, 1]),  # the fourth opens a batch that the others join at no cost
    ],
)
async def test_requests_at_once_are_spread(routing: Routing, shares: list[int]) -> None:
    async with live(served(dispatch=DispatchPolicy(routing=routing)), agents=3) as running:
        for agent in running.agents.values():
            agent.backend.free.clear()
        clients = [await running.client() for _ in range(6)]
        for client in clients:
            client.send()
        await running.until_metric('mark_gateway_in_flight{model="echo"}', 6)
        for agent in running.agents.values():
            agent.backend.free.set()
        replies = [await client.read() for client in clients]
        for client in clients:
            await client.close()
        counts = [len(agent.backend.requests) for agent in running.agents.values()]

        assert {reply.status for reply in replies} == {200}
        assert counts == shares


async def test_reports_count_every_request_once_though_the_store_goes_away() -> None:
    async with live() as running:
        await running.ask()
        running.store.lose_report_answers = 1
        await until(lambda: running.store.total("instance") == 1)
        running.store.away = True
        for _ in range(3):
            assert (await running.ask()).status == 200
        running.store.away = False
        await until(lambda: running.store.total("instance") == 4)
        assert running.store.arrivals() == 4
        assert running.store.total("latency_sum_s") > 0
        assert sorted(number for _, number in running.store.reports) == list(
            range(1, len(running.store.reports) + 1)
        )


async def test_arrivals_are_counted_by_the_services_clock() -> None:
    async def _told(running: Live, count: int) -> bool:
        return running.store.told_clock >= count

    async with live() as running:
        running.store.anchor = ClockAnchor(wall_at=time.time(), service_at=1000.0, speed=0.0)
        told = running.store.told_clock
        await until(lambda: _told(running, told + 2))  # by the second, the first has arrived
        await running.ask()
        await until(lambda: running.store.arrivals() == 1)
        windows = [
            window
            for report in running.store.reports.values()
            for model in report.models
            for window, _ in model.arrivals
        ]

        assert windows == [200]


async def test_sagemakers_paths_and_errors() -> None:
    async with live() as running:
        body = json.dumps({"instances": [[1, 2]]}).encode()
        for path in ("/endpoints/echo/invocations", "/invocations"):
            reply = await running.ask(path, body, content_type="application/json")
            assert reply.status == 200
            assert reply.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
            named = await running.ask(path, body, x_amzn_sagemaker_target_variant="AllTraffic")
            assert named.status == 200
        refused = await running.ask("/invocations", body, content_encoding="br")
        missing = await running.ask("/endpoints/none/invocations", body)

        assert (refused.status, missing.status) == (415, 404)
        for reply in (refused, missing):
            assert reply.headers["x-amzn-errortype"] == "ValidationError"
            assert "message" in reply.document
        other = await running.ask("/invocations", body, x_amzn_sagemaker_target_variant="other")
        assert other.status == 404


async def test_a_gateway_goes_on_when_its_members_are_forgotten() -> None:
    async with live() as running:
        running.store.away = True
        running.store.listed.clear()
        running.store._version += 1
        assert (await running.ask(INFER)).status == 200


async def test_what_a_client_accepts_reaches_agent_and_lambda() -> None:
    overflow = FakeLambda()
    policy = DispatchPolicy(bounced=Bounced.LAMBDA)
    async with live(served(dispatch=policy, overflow=LAMBDA), overflow=overflow) as running:
        await running.ask("/invocations", b"[[1, 2]]", accept="text/csv")
        await running.ask("/invocations", b"[[1, 2]]", accept="text/csv", x_mark_deadline_ms="1")
        await running.ask(accept="text/csv")
        seen = running.agents["i-0"].backend.requests

        assert [request.accept for request in (*seen, overflow.calls[0][1])] == ["text/csv", "", "text/csv"]
        assert (await running.ask("/invocations", b"[]", accept="x" * 256)).status == 400


async def test_a_gateway_that_ends_answers_what_came_on_a_kept_connection_and_closes_it() -> None:
    async with live(limits=HttpLimits(leave_s=60.0)) as running:
        one, pipelining = await running.client(), await running.client()
        for client in (one, pipelining):
            assert "connection" not in (await client.ask()).headers
        running.gateway_stop.set()
        await until(running.refuses_connections)

        reply = await one.ask()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await one.is_closed()
        pipelining.send()
        pipelining.send()
        assert "connection" not in (await pipelining.read()).headers
        assert (await pipelining.read()).headers["connection"] == "close"
        for client in (one, pipelining):
            await client.close()


async def test_a_gateway_that_ends_does_not_wait_for_a_client_that_asks_for_nothing() -> None:
    async with live(limits=HttpLimits(leave_s=0.0)) as running:
        quiet = await running.client()
        await quiet.ask()
        running.gateway_stop.set()
        assert await quiet.is_closed()
        await quiet.close()
