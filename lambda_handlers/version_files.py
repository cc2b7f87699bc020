"""Files of a model's version, for a function that answers as it: fetched from the service's bucket, by their hash.

They are unpacked anew by each process that loads them. What was there before goes first: 512 MB is all that an
environment has, and another version's code may have written there.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mark.aws.names import VERSIONS
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.models.versions import shown
from mark.lambda_handlers.environment import required_variable
from mark.plugins.version_hash import NAME, HowToLoad, check_unpacked

if TYPE_CHECKING:
    from botocore.config import _RetryDict
    from mypy_boto3_s3 import S3Client

PLACE = "mark-versions"
"""Folder for them among temporary files."""
CONNECT_S, READ_S, ATTEMPTS = 3, 15, 3
"""Somebody waits for the answer."""


class VersionUnavailable(RetryLater):
    """The files of a version cannot be had: another server may answer. Gateways know it by its name."""


def fetch_version(version: str) -> tuple[str, str]:
    """The target of a version's model, and the folder of its modules, empty where it is installed.

    VersionUnavailable where its files cannot be had; Misconfigured where it is no version's name.
    """
    if not NAME.fullmatch(version):
        raise Misconfigured(f"{version!r} is no version of a model")
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and not needed for own files

    place = Path(tempfile.gettempdir()) / PLACE / version
    try:
        how = _unpack(version, place)
    except (BotoCoreError, ClientError, OSError, tarfile.TarError, Misconfigured) as error:
        raise VersionUnavailable(f"the files of version {shown(version)} cannot be had: {error}") from error
    if how.installed is not None:
        return how.target, ""
    where = how.target.rpartition(":")[0]
    return (f"{place}/{how.target}" if where.endswith(".py") else how.target), str(place)


def _unpack(version: str, place: Path) -> HowToLoad:
    """Fetch the bundle and unpack it; the folder is there whole or not at all. Errors: also Misconfigured."""
    draft = place.with_name(f".{version}")
    shutil.rmtree(place.parent, ignore_errors=True)
    draft.mkdir(parents=True)
    bucket = required_variable("MARK_VERSIONS_BUCKET")
    body = _objects().get_object(Bucket=bucket, Key=f"{VERSIONS}/{version}.tar.gz")["Body"]
    with tarfile.open(fileobj=body, mode="r|gz") as packed:
        packed.extractall(draft, filter="data")
    how = check_unpacked(draft, version)
    draft.rename(place)
    return how


@cache
def _objects() -> S3Client:
    import boto3  # noqa: PLC0415 - importing it takes longer than all else here
    from botocore.config import Config  # noqa: PLC0415 - likewise

    retries: _RetryDict = {"mode": "standard", "max_attempts": ATTEMPTS}
    return boto3.session.Session().client(
        "s3", config=Config(connect_timeout=CONNECT_S, read_timeout=READ_S, retries=retries)
    )
