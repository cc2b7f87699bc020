"""A metric of CloudWatch as a trace: asked for page by page, and by the command from moto."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.stub import Stubber

from mark.aws.metrics import Metric, metric_sums
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured, RetryLater
from mark.offline.metrics.cloudwatch import shortest_period_s
from mark.simulator.traces.trace import read_trace
from tests.aws.builders import aws

REQUESTS = Metric(namespace="AWS/ApplicationELB", name="RequestCount", dimensions={"LoadBalancer": "app/api/1"})
START = 1_714_557_600


@pytest.fixture
def stub() -> Iterator[tuple[Aws, Stubber]]:
    made = aws()
    with Stubber(made.metrics) as stubber:
        yield made, stubber
    made.close()


def page(first: int, values: list[float], status: str = "Complete") -> dict:
    moments = [datetime.fromtimestamp(START + 60 * (first + at), UTC) for at in range(len(values))]
    result = {
        "Id": "requests",
        "Label": "RequestCount",
        "Timestamps": moments,
        "Values": values,
        "StatusCode": status,
    }
    return {"MetricDataResults": [result], "Messages": []}


def test_pages_are_one_metric(stub: tuple[Aws, Stubber]) -> None:
    there, stubber = stub
    stat = {
        "Metric": {
            "Namespace": "AWS/ApplicationELB",
            "MetricName": "RequestCount",
            "Dimensions": [{"Name": "LoadBalancer", "Value": "app/api/1"}],
        },
        "Period": 60,
        "Stat": "Sum",
    }
    asked = {
        "MetricDataQueries": [{"Id": "requests", "MetricStat": stat}],
        "StartTime": START,
        "EndTime": START + 180,
        "ScanBy": "TimestampAscending",
    }
    stubber.add_response("get_metric_data", page(0, [3.0, 4.0], "PartialData") | {"NextToken": "more"}, asked)
    stubber.add_response("get_metric_data", page(2, [5.0]), asked | {"NextToken": "more"})
    found = list(metric_sums(there, REQUESTS, START, START + 180, 60))
    assert found == [(START, 3.0), (START + 60, 4.0), (START + 120, 5.0)]
    stubber.assert_no_pending_responses()


def test_half_a_metric_is_none(stub: tuple[Aws, Stubber]) -> None:
    there, stubber = stub
    stubber.add_response("get_metric_data", page(0, [3.0], "InternalError"))
    with pytest.raises(RetryLater, match="could not read all of AWS/ApplicationELB/RequestCount; ask again"):
        list(metric_sums(there, REQUESTS, START, START + 60, 60))


def test_a_refusal_is_aws_s_own_line(stub: tuple[Aws, Stubber]) -> None:
    there, stubber = stub
    stubber.add_client_error("get_metric_data", "AccessDenied", "not authorized", 403)
    with pytest.raises(Misconfigured, match="GetMetricData: AccessDenied: not authorized"):
        list(metric_sums(there, REQUESTS, START, START + 60, 60))


def test_older_days_are_asked_for_in_the_periods_that_are_kept() -> None:
    assert [shortest_period_s(days) for days in (14, 15, 62, 63, 400)] == [60, 300, 300, 3600, 3600]


@pytest.fixture
def account(moto: None) -> int:
    """First minute of two hours with 600 requests in each minute but one; another load balancer is idle."""
    first = int(time.time() / 60) * 60 - 7200
    made = aws()
    counted = [("app/api/1", first + 60 * at) for at in range(120) if at != 30]
    data = [
        {
            "MetricName": "RequestCount",
            "Dimensions": [{"Name": "LoadBalancer", "Value": balancer}],
            "Timestamp": datetime.fromtimestamp(at, UTC),
            "Value": 600.0,
        }
        for balancer, at in (*counted, ("app/old/1", first - 30 * 86_400))
    ]
    made.metrics.put_metric_data(Namespace="AWS/ApplicationELB", MetricData=data)
    made.close()
    return first


ASK = ("trace", "cloudwatch", "AWS/ApplicationELB/RequestCount", "--out", "got.csv")


def test_the_command_asks_the_account(mark, account: int) -> None:
    answer = mark(*ASK, "--dimension", "LoadBalancer=app/api/1", "--days", "0.1")
    assert answer.status == 0, answer.err
    assert "1 missing bins became 0 rps" in answer.err
    assert "its data begins" in answer.err
    trace = read_trace("got.csv")
    assert (trace.start_at, trace.bin_s) == (account, 60)
    assert set(trace.rates_rps) == {0.0, 10.0}
    assert 110 <= len(trace.rates_rps) <= 116  # the last five minutes may still grow


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            (*ASK, "--dimension", "LoadBalancer=api"),
            "with --dimension LoadBalancer=api in these days; there is --dimension LoadBalancer=app/api/1",
        ),
        (
            (*ASK, "--region", "eu-west-1"),
            "has no metric AWS/ApplicationELB/RequestCount in eu-west-1",
        ),
        (
            (*ASK, "--dimension", "LoadBalancer=app/old/1"),
            "no datapoint in these days; try more --days",
        ),
        ((*ASK, "--dimension", "api"), "must read NAME=VALUE"),
        (("trace", "cloudwatch", "RequestCount", "--out", "got.csv"), "must read NAMESPACE/METRIC"),
    ],
)
def test_what_is_not_there_is_one_line(mark, account: int, arguments: tuple[str, ...], told: str) -> None:
    answer = mark(*arguments)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert told in answer.err
    assert not Path("got.csv").exists()
