"""A model in the agent's own process: loaded by name, called on its own thread so that frames keep flowing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mark.plugins.memory import share_one_heap
from mark.ports import InferReply, InferRequest, PythonModel
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.model_runner import ModelRunner
from mark.serving.backends.model_thread import ModelThread

CLOSE_WITHIN_S = 5.0


class PythonBackend(ModelRunner):
    """Calls `predict` with whole batches. `inputs` and `outputs` are the model's own, known once it started."""

    platform = "python"

    def __init__(
        self,
        make_model: Callable[[], PythonModel],
        *,
        name: str,
        version: str = MODEL_VERSION,
        threads: int | None = None,
    ) -> None:
        super().__init__(make_model, name=name, version=version, threads=threads)
        self._thread = ModelThread(f"model-{name}")

    async def start(self) -> None:
        """Make the model and let it answer zeros once, which fills its caches. Errors: Misconfigured."""
        share_one_heap()
        await self._thread.run(self.load)

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Read, predict and write on the model's thread, one batch after another."""
        return await self._thread.run(self.answer, batch)

    async def infer_variant(self, batch: Sequence[InferRequest], variant: str) -> Sequence[InferReply]:
        """The same with that variant, to which the model switches in place."""
        return await self._thread.run(self.answer, batch, variant)

    async def close(self) -> None:
        """Wait a little for the batch in work, end the thread; one that hangs is left behind."""
        await self._thread.close(CLOSE_WITHIN_S)
