"""Traces in a bucket: read through boto3 from moto, and by the command from the emulated AWS."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.aws.objects import BucketReader
from mark.aws.session import Aws
from mark.cli.main import run
from mark.domain.errors import Misconfigured
from mark.simulator.traces.trace import read_trace
from tests.aws.builders import aws
from tests.emulator.conftest import World, config_for

LINE = (
    "https 2024-05-01T10:00:0{at}.500000Z app/api/1 192.0.2.10:2817 10.0.0.1:80 0.001 0.048 0.000 200 200 34 366 "
    '"POST https://api.example.com:443/v2/{path} HTTP/1.1" "curl/8.5.0" - - arn:aws:x:1 "Root=1" "-" "-" 0 '
    '2024-05-01T10:00:0{at}.250000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"\n'
)


def fill(there: Aws) -> None:
    """A bucket as Elastic Load Balancing fills it: by day, gzip, with the file that tried its permission."""
    there.objects.create_bucket(Bucket="access-logs")
    days = {
        "01/a.log.gz": LINE.format(at=3, path="b") + LINE.format(at=1, path="a"),
        "02/b.log.gz": LINE.format(at=5, path="a"),
    }
    for name, content in days.items():
        there.objects.put_object(
            Bucket="access-logs", Key=f"alb/AWSLogs/1/2024/05/{name}", Body=gzip.compress(content.encode())
        )
    there.objects.put_object(Bucket="access-logs", Key="alb/AWSLogs/1/ELBAccessLogTestFile", Body=b"test")


@pytest.fixture
def there(moto: None) -> Iterator[Aws]:
    made = aws()
    fill(made)
    yield made
    made.close()


def test_a_prefix_is_read_as_one_trace(there: Aws) -> None:
    trace = read_trace("s3://access-logs/alb/", objects=BucketReader(there))
    assert trace.name == "alb"
    assert trace.arrivals_s == pytest.approx([0.25, 2.25, 4.25])


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("s3://nowhere/alb/", "NoSuchBucket"),
        ("s3://access-logs/web/", "no object is there"),
        ("s3://", "names no bucket"),
    ],
)
def test_what_is_not_there_is_said(there: Aws, place: str, expected: str) -> None:
    with pytest.raises(Misconfigured, match=expected):
        read_trace(place, objects=BucketReader(there))


def test_the_command_reads_the_account_s_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(config_for(tmp_path / "logs"))
    try:
        made = aws(endpoint_url=world.url)
        fill(made)
        made.close()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", world.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        assert run(["trace", "describe", "s3://access-logs/alb/", "--where", "path=/v2/a", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["requests"], found["duration_s"]) == (2, 5)
    finally:
        world.stop()
