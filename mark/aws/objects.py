"""Objects of S3, read: what a user's own bucket holds, such as access logs."""

from __future__ import annotations

from collections.abc import Iterator

from mark.aws.errors import translated
from mark.aws.session import Aws

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
