"""Trains a small network to say whether a point lies within a quarter circle, and keeps its weights."""

from pathlib import Path

import torch
from circle import network

torch.manual_seed(0)
torch.set_num_threads(1)
points = torch.rand(1024, 2)
inside = ((points**2).sum(dim=1, keepdim=True) < 0.5).float()
net = network()
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(300):
    optimiser.zero_grad()
    torch.nn.functional.binary_cross_entropy(net(points), inside).backward()
    optimiser.step()
torch.save(net.state_dict(), Path(__file__).with_name("circle.pt"))
