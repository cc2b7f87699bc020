from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from tests.aws.builders import Scene, scene


@pytest.fixture
def moto() -> Iterator[None]:
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield


@pytest.fixture
def there(moto: None) -> Iterator[Scene]:
    made = scene()
    yield made
    made.close()
