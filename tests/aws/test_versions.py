"""Bundles of versions in the bucket, by the calls that `mark rollout start` and functions may make."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.aws.functions.function_url import compose_payload, compose_ping
from mark.aws.names import VERSIONS
from mark.lambda_handlers import infer, served, version_files
from mark.live.version_bundles import bundle_of, upload
from mark.protocols.oip.bodies import compose_infer
from mark.service_spec import BackendSpec
from tests.aws.builders import Scene, scene
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder
from tests.lambda_handlers.records import CONTEXT

MODEL = """
import numpy as np
from mark.domain.tensor import TensorSpec

class Shop:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 1)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)

    def predict(self, tensors):
        return {"y": np.full_like(tensors["x"], ANSWER)}
"""


@pytest.fixture
def there(moto: None) -> Iterator[Scene]:
    """One with a bucket."""
    made = scene(whole=True)
    yield made
    made.close()


def test_a_function_answers_as_the_version_that_a_call_names(
    called: Recorder, there: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "MARK_MODEL": "shop",
        "MARK_BACKEND_KIND": "python",
        "MARK_BACKEND_TARGET": "shop.py:Shop",
        "MARK_VERSIONS_BUCKET": there.bucket,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(served, "_served", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    version_files._objects.cache_clear()
    backend = BackendSpec(kind="python", target=f"{tmp_path}/home/shop.py:Shop")
    (tmp_path / "home").mkdir()
    versions = []
    with called.acting("setup"):
        for answer in (1, 2):
            (tmp_path / "home" / "shop.py").write_text(MODEL.replace("ANSWER", str(answer)))
            bundle = bundle_of(backend)
            upload(there.aws, there.bucket, bundle)
            versions.append(bundle.version)
    asked = compose_infer({"x": np.ones((1, 1), np.float32)}, path="/v2/models/shop/infer", binary=False)
    with called.acting("infer"):
        for version, answer in zip((*versions, versions[0]), (1.0, 2.0, 1.0), strict=True):
            event = json.loads(compose_payload(asked._replace(version=version)))
            found = json.loads(infer.handler(event, CONTEXT)["body"])
            assert found["outputs"][0]["data"] == [answer]
            infer.handler(json.loads(compose_ping(version)), CONTEXT)
            served._served.clear()  # as in a new process
        with pytest.raises(version_files.VersionUnavailable):
            infer.handler(json.loads(compose_ping("0" * 64)), CONTEXT)
    stolen = there.aws.objects.get_object(Bucket=there.bucket, Key=f"{VERSIONS}/{versions[1]}.tar.gz")[
        "Body"
    ].read()
    there.aws.objects.put_object(Bucket=there.bucket, Key=f"{VERSIONS}/{versions[0]}.tar.gz", Body=stolen)
    with pytest.raises(version_files.VersionUnavailable, match="other files than its name stands for"):
        infer.handler(json.loads(compose_ping(versions[0])), CONTEXT)
    called.assert_permitted("infer", replace(NAMES, bucket=there.bucket))


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
