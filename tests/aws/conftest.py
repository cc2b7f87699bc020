from __future__ import annotations

from collections.abc import Iterator

import botocore.handlers
import pytest
from moto import mock_aws

from tests.aws.builders import Scene, scene
from tests.aws.recording import Recorder


@pytest.fixture
def moto() -> Iterator[None]:
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield


@pytest.fixture
def there(moto: None) -> Iterator[Scene]:
    made = scene()
    yield made
    made.close()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    handlers = [*botocore.handlers.BUILTIN_HANDLERS, ("provide-client-params", recorder)]
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", handlers)
    return recorder
