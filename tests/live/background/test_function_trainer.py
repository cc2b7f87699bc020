"""A forecaster trained in the service's function, on the emulated AWS: it lands and is used, or harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mark.aws.archive import bucket_name
from mark.aws.permissions.policies import Names
from mark.aws.provision import set_up
from mark.emulator.config import ACCOUNT, REGION
from mark.live.forecasting.forecaster_training import Task, TrainingFailed
from mark.live.forecasting.function_trainer import FunctionTrainer
from mark.plugins.trained import ResultRefused
from tests.aws.builders import aws, service
from tests.emulator.conftest import World as EmulatedAws
from tests.emulator.conftest import config_for
from tests.live.background.test_retraining import BEGAN_AT, HOUR_S, Store, World, _model
from tests.waiting import PATIENCE_S, until

SERVICE, BUCKET = "shop", bucket_name("shop", ACCOUNT)
NAMES = Names(service=SERVICE, region=REGION, account=ACCOUNT, bucket=BUCKET, train=f"mark-{SERVICE}-train")


@dataclass
class Account:
    """The service's account, and trainers of the model `served` in its function."""

    emulated: EmulatedAws
    orders: list[bool] = field(default_factory=list)
    invoked_before: int = 0

    def trainer(self, ordered: bool = False, *, poll_s: float = 0.02) -> FunctionTrainer:
        self.orders.append(ordered)
        return FunctionTrainer(
            lambda: aws(endpoint_url=self.emulated.url, role="controller"),
            lambda: BUCKET,
            service=SERVICE,
            model="served",
            ordered=ordered,
            poll_s=poll_s,
        )

    @property
    def invocations(self) -> int:
        functions = self.emulated.state()["lambda"]
        return functions.get(f"mark-{SERVICE}-train", {}).get("invocations", 0) - self.invoked_before

    @property
    def refused(self) -> dict[str, int]:
        return self.emulated.state()["permissions"]["refused"]

    def results(self) -> list[str]:
        listed = self.emulated.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="training/shop/served/")
        return [one["Key"] for one in listed.get("Contents", ()) if one["Key"].endswith("/result")]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedAws]:
    made = EmulatedAws(config_for(tmp_path_factory.mktemp("logs"), names=NAMES))
    provisioner = aws(endpoint_url=made.url, role="setup")
    set_up(provisioner, service(trains=True))
    provisioner.close()
    yield made
    made.stop()


@pytest.fixture
def account(emulated: EmulatedAws) -> Account:
    made = Account(emulated)
    made.invoked_before = made.invocations
    for key in made.results():
        emulated.client("s3").delete_object(Bucket=BUCKET, Key=key)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    return made


def task_in(folder: Path, cache: str) -> Task:
    model = _model(folder, "served", 3)
    history = model.history(BEGAN_AT)
    return Task(forecaster=model.bundle.forecaster, history=history, seed=3, cache_dir=folder / cache)


def corrupt(account: Account) -> None:
    client, (key,) = account.emulated.client("s3"), account.results()
    body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    client.put_object(Bucket=BUCKET, Key=key, Body=body[:-1] + bytes([body[-1] ^ 1]))


def test_what_was_ordered_lands_in_the_cache_once_and_is_ordered_again_where_it_is_gone_or_corrupt(
    account: Account, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    account.trainer(ordered=True).train(task_in(folder, "one"), PATIENCE_S)  # its result was deleted
    (learned,) = (folder / "one").iterdir()
    assert learned.name == f"learned-{BEGAN_AT:.0f}-3.json"
    account.trainer(ordered=True).train(task_in(folder, "two"), PATIENCE_S)  # as another controller
    assert (folder / "two" / learned.name).read_bytes() == learned.read_bytes()
    assert account.invocations == 1

    corrupt(account)
    account.trainer(ordered=True).train(task_in(folder, "three"), PATIENCE_S)
    assert "its checksum is wrong" in [vars(record).get("why") for record in caplog.records]
    assert list((folder / "three").iterdir())
    assert (account.invocations, account.refused) == (2, {})


def test_a_failing_training_says_why_and_leaves_nothing(account: Account, folder: Path) -> None:
    (folder / "mode").write_text("refuse")
    with pytest.raises(ResultRefused, match="nothing to learn from"):
        account.trainer().train(task_in(folder, "one"), PATIENCE_S)
    assert not (folder / "one").exists()


def test_a_training_without_a_result_ends_in_time_or_with_its_service(account: Account, folder: Path) -> None:
    (folder / "mode").write_text("hang")
    with pytest.raises(TrainingFailed, match=r"no result within 0\.01 s"):
        account.trainer().train(task_in(folder, "one"), 0.01)
    stopped = account.trainer()
    stopped.stop()
    with pytest.raises(TrainingFailed, match="the service ends"):
        stopped.train(replace(task_in(folder, "one"), seed=4), PATIENCE_S)


def followed(world: World, check: Callable[[Any], object]) -> Any:
    """The forecaster's status once it is so."""
    until(lambda: world.tick(1 / 60) or check(world.told))
    return world.told


def test_a_controller_uses_what_the_function_trained_and_keeps_it_when_the_next_training_fails(
    account: Account, folder: Path
) -> None:
    world = World(folder, Store(), elsewhere=account.trainer)
    world.retraining.begin(world.store, BEGAN_AT)
    world.tick(24.5)
    learned_until = world.history.end_at
    told = followed(world, lambda told: told.training is None)
    assert (told.why, told.failed, told.until) == ("schedule", None, learned_until)
    assert world.speaks_of() == pytest.approx(learned_until)

    successor = World(folder, world.store, elsewhere=account.trainer)
    successor.retraining.begin(world.store, BEGAN_AT)
    successor.catch_up()
    assert successor.speaks_of() == pytest.approx(learned_until)
    assert account.orders == [False, True]

    (folder / "mode").write_text("refuse")
    world.tick(24.5)
    told = followed(world, lambda told: told.failed)
    assert "nothing to learn from" in told.failed.error
    assert told.until == learned_until
    assert world.speaks_of() == pytest.approx(learned_until)
    assert world.retraining.notes[-1].text.endswith("the one before goes on")


def test_a_forecaster_that_cannot_be_made_here_is_trained_first_when_there_is_a_day_of_load(
    account: Account, folder: Path
) -> None:
    """As an LSTM in an image without torch: until then the controller's fallback answers."""
    (folder / "mode").write_text("refuse")
    world = World(folder, Store(), elsewhere=account.trainer)
    world.retraining.begin(world.store, BEGAN_AT)
    with pytest.raises(Exception, match="not trained yet"):
        world.retraining.forecast(world.history, 60)
    world.tick()
    assert world.told.training is None, "an hour is nothing to learn from"

    (folder / "mode").unlink()
    world.history = replace(world.history, mean_rps=(5.0,) * 1500, max_rps=(6.0,) * 1500)
    world.tick()
    assert (world.told.training.why, world.told.training.since) == ("first", world.at)
    told = followed(world, lambda told: told.training is None)
    assert (told.why, told.failed) == ("first", None)
    assert world.speaks_of() > BEGAN_AT - HOUR_S
    world.tick(4.0)
    assert world.told.training is None
