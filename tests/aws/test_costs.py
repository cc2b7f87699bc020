"""Cost Explorer by day: pages, tags, another currency; and what the report calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from moto import mock_aws

from mark.aws.archive import get_object, put_object, snapshot_key
from mark.aws.costs import BY_USAGE, daily_usd, usd_by_usage
from mark.aws.mail import send_mail
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured
from mark.lambda_handlers.mailing import done_before
from tests.aws.builders import aws
from tests.aws.iam import NAMES
from tests.aws.lease_tables import TABLE, make_table
from tests.aws.recording import Recorder
from tests.lambda_handlers.records import CONTEXT

FIRST, SECOND, END = date(2026, 11, 1), date(2026, 11, 2), date(2026, 11, 3)
TAGS = {"mark:service": "shop", "mark:owner": "team"}
MAIL = b"From: a@example.org\r\n\r\nhello"


def day(at: date, usd: str, unit: str = "USD") -> dict[str, Any]:
    return {"TimePeriod": {"Start": at.isoformat()}, "Total": {"AmortizedCost": {"Amount": usd, "Unit": unit}}}


class Explorer:
    """Cost Explorer with these pages; what it was asked is kept."""

    def __init__(self, there: Aws, *pages: list[dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._pages = list(pages)
        there._clients["costs"] = self

    def get_cost_and_usage(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(dict(asked))
        page = {"ResultsByTime": self._pages[len(self.asked) - 1]}
        return page if len(self.asked) == len(self._pages) else {**page, "NextPageToken": f"p{len(self.asked)}"}

    def close(self) -> None:
        """Nothing is open."""


def test_days_are_added_up_over_pages_and_filtered_by_all_tags() -> None:
    there = aws()
    made = Explorer(there, [day(FIRST, "1.25")], [day(FIRST, "0.25"), day(SECOND, "2")])
    assert daily_usd(there, FIRST, END, TAGS) == {FIRST: 1.5, SECOND: 2.0}
    assert made.asked[0]["TimePeriod"] == {"Start": "2026-11-01", "End": "2026-11-03"}
    assert [item["Tags"]["Key"] for item in made.asked[0]["Filter"]["And"]] == ["mark:owner", "mark:service"]
    assert [asked.get("NextPageToken") for asked in made.asked] == [None, "p1"]


def test_usage_is_added_up_over_days_and_is_final_once_each_of_them_is() -> None:
    def of(usage: str, usd: str) -> dict[str, Any]:
        return {"Keys": ["EC2", usage], "Metrics": {"AmortizedCost": {"Amount": usd, "Unit": "USD"}}}

    there = aws()
    days: list[dict[str, Any]] = [
        {"Groups": [of("a", "1"), of("b", "2")], "Estimated": False},
        {"Groups": [of("a", "0.5")]},
    ]
    made = Explorer(there, days, days[:1])
    assert usd_by_usage(there, FIRST, END, {}) == ({("EC2", "a"): 2.5, ("EC2", "b"): 4.0}, True)
    assert made.asked[0]["GroupBy"] == BY_USAGE
    Explorer(there, days[:1])
    assert usd_by_usage(there, FIRST, END, {})[1] is False


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [({}, None), ({"mark:service": "shop"}, {"Tags": {"Key": "mark:service", "Values": ["shop"]}})],
)
def test_one_tag_needs_no_and(tags: dict[str, str], wanted: object) -> None:
    there = aws()
    made = Explorer(there, [])
    assert daily_usd(there, FIRST, END, tags) == {}
    assert made.asked[0].get("Filter") == wanted


def test_no_days_are_not_asked_for() -> None:
    there = aws()
    made = Explorer(there)
    assert daily_usd(there, END, END, TAGS) == daily_usd(there, END, FIRST, TAGS) == {}
    assert made.asked == []


def test_another_currency_is_refused() -> None:
    there = aws()
    Explorer(there, [day(FIRST, "1", "CNY")])
    with pytest.raises(Misconfigured, match="CNY"):
        daily_usd(there, FIRST, END, TAGS)


def test_the_report_calls_what_is_listed_for_it(called: Recorder) -> None:
    with mock_aws(), called.acting("report"):
        there = aws(role="report")
        there.mail.create_email_identity(EmailIdentity="a@example.org")
        send_mail(there.mail, MAIL, sender="a@example.org", to=["b@example.org"])
        daily_usd(there, FIRST, END, TAGS)
        secrets = boto3.client("secretsmanager", region_name="us-east-1")
        secrets.create_secret(Name="s", SecretString="redis://x")
        assert secrets.get_secret_value(SecretId="s")["SecretString"] == "redis://x"
        there.objects.create_bucket(Bucket="kept")
        put_object(there.objects, "kept", "reports/a.html", b"a", content_type="text/html")
        there.close()
    ours = {("sesv2", "CreateEmailIdentity"), ("secretsmanager", "CreateSecret"), ("s3", "CreateBucket")}
    names = replace(
        NAMES, bucket="kept", secret=NAMES.arn("secretsmanager", "secret:s-AbCdEf"), sender="a@example.org"
    )
    called.assert_permitted("report", names, but=frozenset(ours))


def test_the_report_of_a_snapshot_calls_what_is_listed_for_it(
    called: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once done, it is not done again; what failed is forgotten, so that it may be."""
    monkeypatch.setenv("MARK_REPORT_TABLE", TABLE)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        there = aws(role="report")
        make_table(there.tables)
        there.mail.create_email_identity(EmailIdentity="a@example.org")
        there.objects.create_bucket(Bucket="kept")
        put_object(there.objects, "kept", snapshot_key("shop"), b"s", content_type="application/gzip")

        def mail(event: dict[str, Any]) -> dict[str, str]:
            get_object(there.objects, "kept", snapshot_key("shop"))
            daily_usd(there, FIRST, END, TAGS)
            put_object(there.objects, "kept", "reports/a.html", b"a", content_type="text/html")
            if event["time"] == "never":
                raise Misconfigured("never")
            return {"message": send_mail(there.mail, MAIL, sender="a@example.org", to=["b@example.org"])}

        config = IdempotencyConfig(event_key_jmespath="time")
        config.register_lambda_context(CONTEXT)
        once = idempotent_function(
            mail, data_keyword_argument="event", persistence_store=done_before(), config=config
        )
        with called.acting("snapshot-report"):
            first = once(event={"time": "now"})
            assert once(event={"time": "now"}) == first
            with pytest.raises(Misconfigured, match="never"):
                once(event={"time": "never"})
        there.close()
    names = replace(NAMES, bucket="kept", sender="a@example.org")
    called.assert_permitted("snapshot-report", names)
