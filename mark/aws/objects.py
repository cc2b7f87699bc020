"""Objects of S3: what a user's own bucket holds, such as access logs; files that are put into the service's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mark.aws.errors import translated, unless_absent
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

CHUNK_BYTES = 1 << 20


class BucketReader:
    """Objects by bucket and key. Errors: MarkError, with AWS's own words."""

    def __init__(self, aws: Aws) -> None:
        self._objects = aws.objects

    def names(self, bucket: str, prefix: str) -> Iterator[str]:
        """Keys that begin with `prefix`, rising, page by page."""
        with translated():
            for page in self._objects.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    yield item["Key"]

    def read(self, bucket: str, key: str) -> Iterator[bytes]:
        """The object's bytes in chunks, as they arrive."""
        with translated():
            body = self._objects.get_object(Bucket=bucket, Key=key)["Body"]
            try:
                yield from body.iter_chunks(CHUNK_BYTES)
            finally:
                body.close()


def holds_object(aws: Aws, bucket: str, key: str) -> bool:
    """True where the bucket has it. Errors: MarkError, with AWS's own words."""
    absent = ("404", "NoSuchKey", "NotFound")
    return unless_absent(lambda: aws.objects.head_object(Bucket=bucket, Key=key), absent) is not None


def empty_bucket(aws: Aws, bucket: str) -> int:
    """Remove all objects for good; how many versions there were. Errors: MarkError, with AWS's own words."""
    removed = 0
    with translated():
        for page in aws.objects.get_paginator("list_object_versions").paginate(Bucket=bucket):
            there = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            names: list[ObjectIdentifierTypeDef] = [{"Key": o["Key"], "VersionId": o["VersionId"]} for o in there]
            if not names:
                continue
            reply = aws.objects.delete_objects(Bucket=bucket, Delete={"Objects": names, "Quiet": True})
            if failed := reply.get("Errors"):
                key, why = failed[0].get("Key"), failed[0].get("Message")
                raise Misconfigured(f"S3 does not remove {key} of {bucket}: {why}")
            removed += len(names)
    return removed


def put_file(aws: Aws, bucket: str, key: str, path: Path) -> None:
    """Put a file of up to 5 GiB, S3's limit for one call. Errors: MarkError, with AWS's own words."""
    with path.open("rb") as body, translated():
        aws.objects.put_object(Bucket=bucket, Key=key, Body=body)
