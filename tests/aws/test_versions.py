"""Bundles of versions in the bucket, by the calls that `mark rollout start` may make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mark.live.version_bundles import bundle_of, upload
from mark.service_spec import BackendSpec
from tests.aws.builders import Scene
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder


def test_a_version_is_uploaded_once(called: Recorder, there: Scene, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("Shop = dict")
    bundle = bundle_of(BackendSpec(kind="python", target=f"{tmp_path}/model.py:Shop"))
    with called.acting("releaser"):
        assert upload(there.aws, there.bucket, bundle)
        assert not upload(there.aws, there.bucket, bundle)
    bundle.write(tmp_path / "b.tar.gz")
    found = there.aws.objects.get_object(Bucket=there.bucket, Key=bundle.key)["Body"].read()
    assert found == (tmp_path / "b.tar.gz").read_bytes()
    called.assert_permitted("releaser", replace(NAMES, bucket=there.bucket))
