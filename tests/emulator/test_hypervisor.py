"""Instances that are ended while they are still being forked, and what a function says of its batch."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mark.emulator.ec2.hypervisor import Hypervisor
from mark.emulator.events.queue_triggers import _failures
from tests.waiting import PATIENCE_S


def test_an_instance_that_is_ended_while_it_is_forked_leaves_no_process(tmp_path: Path) -> None:
    async def test() -> None:
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        hypervisor = Hypervisor(
            agent="tests.emulator.test_hypervisor:sleep",
            folder=tmp_path,
            python_path=(str(Path(__file__).parents[2]),),
            environment=dict(os.environ),
            kill_after_s=1.0,
            restart_after_s=1.0,
            powered_off=gone.set_result,
        )
        await hypervisor.start()
        hypervisor.power_on("i-1", {})
        hypervisor.power_off("i-1")
        assert hypervisor.runs("i-1")

        assert await asyncio.wait_for(gone, PATIENCE_S) == "i-1"
        hypervisor.power_on("i-2", {})  # forked after the other one
        async with asyncio.timeout(PATIENCE_S):
            while not hypervisor.pids():
                await asyncio.sleep(0.01)
        server = hypervisor._server
        assert server is not None
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii")
        assert children.split() == [str(hypervisor.pids()["i-2"])]
        await hypervisor.stop()

    asyncio.run(test())


def sleep(_environment: object) -> int:
    """An agent that only ends when it is told to."""
    import time  # noqa: PLC0415

    time.sleep(60)
    return 0


@pytest.mark.parametrize(
    ("named", "come_back"),
    [([], set()), (["a"], {"a"}), (["a", "x"], {"a", "b"}), (["x"], {"a", "b"}), ([""], {"a", "b"})],
)
def test_a_batch_comes_back_whole_where_the_answer_names_what_was_not_sent(
    named: list[str], come_back: set[str]
) -> None:
    mapping = SimpleNamespace(function_response_types=["ReportBatchItemFailures"])
    answer = ",".join(f'{{"itemIdentifier": "{name}"}}' for name in named)

    found = _failures(mapping, f'{{"batchItemFailures": [{answer}]}}'.encode(), {"a", "b"})

    assert found == come_back
