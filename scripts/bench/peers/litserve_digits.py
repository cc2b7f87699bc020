"""LitServe serving the digits network: one worker, batching. Runs in the peers' environment."""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np
import torch

from mark.models.digits import Digits
from scripts.bench.peers import MAX_BATCH, MAX_WAIT_S


class DigitsApi(litserve.LitAPI):
    """The same weights and the same `predict`; bodies are Open Inference Protocol's, read by hand."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's name
        """Make the network."""
        torch.set_num_threads(1)
        self._digits = Digits()

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads a type as FastAPI would
        """One image."""
        return np.array(request["inputs"][0]["data"], dtype=np.float32).reshape(8, 8)

    def batch(self, inputs: list[Any]) -> Any:
        """Images of several requests."""
        return np.stack(inputs)

    def predict(self, x: Any) -> Any:
        """Answer a batch."""
        return self._digits.predict({"image": x})

    def unbatch(self, output: dict[str, Any]) -> list[Any]:
        """Each request's own."""
        return list(zip(output["probabilities"], output["label"], strict=True))

    def encode_response(self, output: Any) -> dict[str, Any]:
        """As Open Inference Protocol says."""
        probabilities, label = output
        return {
            "model_name": "digits",
            "outputs": [
                {"name": "probabilities", "datatype": "FP32", "shape": [1, 10], "data": probabilities.tolist()},
                {"name": "label", "datatype": "INT64", "shape": [1], "data": [int(label)]},
            ],
        }


def main() -> None:
    """Serve on the port of the command line."""
    api = DigitsApi(max_batch_size=MAX_BATCH, batch_timeout=MAX_WAIT_S, api_path="/v2/models/digits/infer")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="error", generate_client_file=False)


if __name__ == "__main__":
    main()
