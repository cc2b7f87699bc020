"""The service's bucket: what of it outlives its store. Copies of its journals, and the reports that it mailed.

journal/SERVICE/MODEL/DAY/TIME-RUN-SEGMENT.jsonl.gz    a segment of the journal; names sort by time
journal/SERVICE/MODEL/DAY/figures.json.gz              what a report needs beside it: ledger, marks, load
reports/SERVICE/DAY.html                               a report as it was mailed, with its plots inside

Days and times are of UTC, of the service's clock. The same thing always has the same name: writing it again
changes nothing. The rollout's stack `archive` describes the same bucket.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mark.aws.ec2.launch import OWNER, SERVICE
from mark.aws.errors import translated
from mark.aws.names import name_of
from mark.aws.session import PRICES_REGION, Aws
from mark.domain.errors import AlreadyDone

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

JOURNAL, REPORTS = "journal", "reports"
OLD_VERSIONS_DAYS = 30
RUN_LETTERS = 8
"""Of a run's name: they tell two lives of a service apart that began in the same second."""
UNNAMED_REGION = PRICES_REGION
"""S3's first region takes no name for itself as a bucket's place (API reference, CreateBucket)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """For how many days journals and reports are kept; None: for ever."""

    journals_days: int | None = None
    reports_days: int | None = None


def bucket_name(service: str, account: str) -> str:
    """The bucket of a service that no stack made: names of buckets are unique on AWS."""
    return name_of(service, f"archive-{account}")


def journal_key(service: str, model: str, *, at: float, run: str, segment: int) -> str:
    """The name of a segment whose first tick was `at`."""
    name = f"{_format_utc(at, '%H%M%S')}-{run[:RUN_LETTERS] or 'run'}-{segment:06d}.jsonl.gz"
    return f"{_of_day(service, model, at)}/{name}"


def figures_key(service: str, model: str, at: float) -> str:
    """The name of a model's figures as they stood at the end of a day, or last on it."""
    return f"{_of_day(service, model, at)}/figures.json.gz"


def report_key(service: str, at: float) -> str:
    """The name of the last report that reached to an instant of that day."""
    return f"{REPORTS}/{service}/{_format_utc(at, '%Y-%m-%d')}.html"


def packed(lines: Iterable[bytes]) -> bytes:
    """Lines, zipped: the same lines give the same bytes."""
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)


def put_object(objects: S3Client, bucket: str, key: str, body: bytes, *, content_type: str) -> None:
    """Write an object, over the one of that name. Errors: MarkError."""
    with translated():
        objects.put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type)


def make_bucket(aws: Aws, bucket: str, *, service: str, owner: str, keeping: Keeping) -> None:
    """Make it where it is missing, and have it keep what it is to keep; asking again changes nothing."""
    region, place = aws.settings.region, {}
    if region != UNNAMED_REGION:
        place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(AlreadyDone), translated():
        aws.objects.create_bucket(Bucket=bucket, **place)  # type: ignore[arg-type]
    tags = [{"Key": SERVICE, "Value": service}, {"Key": OWNER, "Value": owner}]
    with translated():
        aws.objects.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})  # type: ignore[typeddict-item]
        aws.objects.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        aws.objects.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": lifecycle_rules(keeping)}
        )


def lifecycle_rules(keeping: Keeping) -> Any:
    """The bucket's rules of expiry, as S3 has them."""
    rules: list[dict[str, Any]] = [
        {
            "ID": "old-versions",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "NoncurrentVersionExpiration": {"NoncurrentDays": OLD_VERSIONS_DAYS},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    ]
    for prefix, days in ((JOURNAL, keeping.journals_days), (REPORTS, keeping.reports_days)):
        if days is not None:
            expires = {"Filter": {"Prefix": f"{prefix}/"}, "Expiration": {"Days": days}}
            rules.append({"ID": f"old-{prefix}", "Status": "Enabled", **expires})
    return rules


def _of_day(service: str, model: str, at: float) -> str:
    return f"{JOURNAL}/{service}/{model}/{_format_utc(at, '%Y-%m-%d')}"


def _format_utc(at: float, pattern: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(pattern)
