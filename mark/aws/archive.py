"""The service's bucket: what of it outlives its store. Copies of its journals, and the reports that it mailed.

journal/SERVICE/MODEL/DAY/TIME-RUN-SEGMENT.jsonl.gz    a segment of the journal; names sort by time
journal/SERVICE/MODEL/DAY/figures.json.gz              what a report needs beside it: ledger, marks, load
journal/SERVICE/snapshot.json.gz                       all that a report reads, where a function mails it
journal/SERVICE/acted-at                               when a controller acted last
journal/SERVICE/orphans.json                           what was said of instances that no controller owns
reports/SERVICE/DAY.html                               a report as it was mailed, with its plots inside

Days and times are of UTC, of the service's clock. The same thing always has the same name: writing it again
changes nothing. In an account the rollout's stack `archive` makes the bucket.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mark.aws.errors import translated
from mark.aws.names import JOURNAL, REPORTS, name_of
from mark.aws.resources import ExpirySpec, tag_list
from mark.aws.session import PRICES_REGION, Aws
from mark.domain.errors import AlreadyDone

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RUN_LETTERS = 8
"""Of a run's name: they tell two lives of a service apart that began in the same second."""
UNNAMED_REGION = PRICES_REGION
"""S3's first region takes no name for itself as a bucket's place (API reference, CreateBucket)."""


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


def snapshot_key(service: str) -> str:
    """The name of the service's last snapshot."""
    return f"{JOURNAL}/{service}/snapshot.json.gz"


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


def get_object(objects: S3Client, bucket: str, key: str) -> bytes:
    """Read an object. Errors: MarkError."""
    with translated():
        body: bytes = objects.get_object(Bucket=bucket, Key=key)["Body"].read()
    return body


def make_bucket(aws: Aws, bucket: str, expiries: Sequence[ExpirySpec], tags: Mapping[str, str]) -> None:
    """Make it where it is missing, and have it forget what it is to forget; asking again changes nothing."""
    region, place = aws.settings.region, {}
    if region != UNNAMED_REGION:
        place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(AlreadyDone), translated():
        aws.objects.create_bucket(Bucket=bucket, **place)  # type: ignore[arg-type]
    with translated():
        aws.objects.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tag_list(tags)})  # type: ignore[typeddict-item]
        aws.objects.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        aws.objects.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": [_lifecycle_rule(expiry) for expiry in expiries]}
        )


def _lifecycle_rule(expiry: ExpirySpec) -> Any:
    """A rule of expiry as S3 has it."""
    days = {
        "Expiration": ("Days", expiry.objects_days),
        "NoncurrentVersionExpiration": ("NoncurrentDays", expiry.old_versions_days),
        "AbortIncompleteMultipartUpload": ("DaysAfterInitiation", expiry.uploads_days),
    }
    return {
        "ID": expiry.name,
        "Status": "Enabled",
        "Filter": {"Prefix": expiry.prefix},
        **{name: {unit: most} for name, (unit, most) in days.items() if most is not None},
    }


def _of_day(service: str, model: str, at: float) -> str:
    return f"{JOURNAL}/{service}/{model}/{_format_utc(at, '%Y-%m-%d')}"


def _format_utc(at: float, pattern: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(pattern)
