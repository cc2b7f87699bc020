"""A network in PyTorch, as MArk serves it: batches of numpy arrays in, batches out."""

from pathlib import Path

import torch

from mark.domain.tensor import TensorSpec


def network() -> torch.nn.Module:
    """Two numbers in, a probability out."""
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Sigmoid())


class Circle:
    """Probability that a point lies in the circle."""

    inputs = (TensorSpec(name="point", datatype="FP32", shape=(-1, 2)),)
    outputs = (TensorSpec(name="inside", datatype="FP32", shape=(-1, 1)),)

    def __init__(self):
        torch.set_num_threads(1)
        self.net = network().eval()
        self.net.load_state_dict(torch.load(Path(__file__).with_name("circle.pt"), weights_only=True))

    def predict(self, tensors):
        """The whole batch in one call."""
        with torch.inference_mode():
            return {"inside": self.net(torch.from_numpy(tensors["point"].copy())).numpy()}
