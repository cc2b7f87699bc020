"""MLServer serving the digits network: one process, adaptive batching. Runs in the peers' environment."""

from __future__ import annotations

import asyncio
import sys

import torch
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor

from mark.models.digits import Digits
from scripts.bench.peers import MAX_BATCH, MAX_WAIT_S


class DigitsRuntime(MLModel):
    """The same weights and the same `predict`."""

    async def load(self) -> bool:
        """Make the network."""
        torch.set_num_threads(1)
        self._digits = Digits()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a batch that MLServer has put together."""
        image = NumpyCodec.decode_input(payload.inputs[0])
        answers = self._digits.predict({"image": image})
        outputs = [NumpyCodec.encode_output(name, answer) for name, answer in answers.items()]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)


def main() -> None:
    """Serve on the port of the command line."""
    port = int(sys.argv[1])
    # No inference workers: on one core, another process and its queues only cost.
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=0,
        metrics_endpoint=None,
        parallel_workers=0,
        gzip_enabled=False,
        debug=False,
    )
    digits = ModelSettings(
        name="digits",
        implementation=DigitsRuntime,
        max_batch_size=MAX_BATCH,
        max_batch_time=MAX_WAIT_S,
        inputs=[MetadataTensor(name=s.name, datatype=s.datatype, shape=list(s.shape)) for s in Digits.inputs],
        outputs=[MetadataTensor(name=s.name, datatype=s.datatype, shape=list(s.shape)) for s in Digits.outputs],
    )
    asyncio.run(MLServer(settings).start([digits]))


if __name__ == "__main__":
    main()
