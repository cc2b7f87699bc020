from __future__ import annotations

from collections.abc import Iterator

import botocore.handlers
import pytest
from botocore.retries.bucket import TokenBucket
from botocore.retries.standard import ExponentialBackoff
from moto import mock_aws

from tests.aws.builders import Scene, scene
from tests.aws.recording import Recorder


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends again at once what AWS throttles, and is not slower after."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda _self, _context: 0.0)
    monkeypatch.setattr(TokenBucket, "acquire", lambda _self, amount=1, block=True: True)


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
