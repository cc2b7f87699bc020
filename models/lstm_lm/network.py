"""The language model's network: characters, one LSTM layer, scores of the next; some 30,000 weights."""

from __future__ import annotations

import math

from torch import Tensor, nn

from mark.models.lstm_lm.alphabet import ALPHABET

WIDTH = 16
HIDDEN = 72
State = tuple[Tensor, Tensor]


class LstmNetwork(nn.Module):
    """Reads symbols and gives scores of the symbol that follows each."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(len(ALPHABET), WIDTH)
        self.lstm = nn.LSTM(WIDTH, HIDDEN, batch_first=True)
        self.scores = nn.Linear(HIDDEN, len(ALPHABET))

    def forward(self, symbols: Tensor, state: State | None) -> tuple[Tensor, State]:
        """symbols: shape (batch, length); scores: (batch, length, alphabet), and the state after the last."""
        states, after = self.lstm(self.symbols(symbols), state)
        return self.scores(states), after

    def bits(self, symbols: Tensor) -> Tensor:
        """Mean bits that each character took by surprise, shape (batch,); those before the text count nothing."""
        scores, _ = self(symbols[:, :-1], None)
        each = nn.functional.cross_entropy(scores.flatten(0, 1), symbols[:, 1:].flatten(), reduction="none")
        there = (symbols[:, 1:] > 0).float()
        total = (each.view_as(there) * there).sum(dim=1)
        answer: Tensor = total / there.sum(dim=1).clamp(min=1) / math.log(2)
        return answer
