"""SubNetAct's operators on transformers: heads, embeddings and layer norms of a sliced width."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mark.domain.errors import Misconfigured
from mark.domain.supernet import Control, ElasticSpace
from mark.models.supernet.elastic import ElasticNetwork
from mark.models.supernet.operators import (
    EmbeddingSlice,
    HeadSlice,
    LayerNormSlice,
    LayerSelect,
    Share,
    WeightSlice,
)
from mark.models.supernet_text import TextSupernet
from mark.models.supernet_text.documentation import LENGTH, SERVICES, WORDS
from mark.models.training import repeatable
from mark.models.transformer.network import TransformerNetwork
from mark.models.transformer.words import LENGTH as SENTENCE

SPACE = TextSupernet.space
CHANNELS, HEADS = 24, 4
seeds = st.integers(0, 1_000_000)


def text(count: int) -> torch.Tensor:
    """Numbers of words, of texts of any length."""
    rng = np.random.default_rng(0)
    words = rng.integers(1, WORDS, (count, LENGTH))
    return torch.from_numpy(np.where(np.arange(LENGTH) < rng.integers(0, LENGTH, (count, 1)) + 1, words, 0))


def drawn(space: ElasticSpace, seed: int) -> Control:
    rng = np.random.default_rng(seed)
    return space.drawn(lambda choices: int(rng.integers(choices)))


@pytest.fixture(scope="module")
def elastic() -> ElasticNetwork:
    with repeatable(3):
        return ElasticNetwork(TextSupernet().network().eval(), SPACE)


@given(seeds)
@settings(max_examples=10)
def test_a_subnet_answers_as_the_same_one_copied_out(elastic: ElasticNetwork, seed: int) -> None:
    control = drawn(SPACE, seed)
    extracted = elastic.extract(control, text(1))
    elastic.switch(control)

    with torch.inference_mode():
        torch.testing.assert_close(elastic(text(8)), extracted(text(8)), rtol=1e-5, atol=1e-5)
    assert not any(
        isinstance(module, LayerSelect | WeightSlice | EmbeddingSlice | LayerNormSlice)
        for module in extracted.modules()
    )
    assert len(list(extracted.get_submodule("blocks").children())) == control.depths[0]


@given(seeds, st.integers(1, HEADS), st.integers(1, CHANNELS), st.booleans())
@settings(max_examples=20)
def test_head_slices_answer_as_torch_s_attention_without_the_other_heads(
    seed: int, heads: int, channels: int, causal: bool
) -> None:
    """Channels that do not come count as zeros, and heads that do not answer as none."""
    with repeatable(seed):
        whole = nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)
        items = torch.randn(3, 5, channels)
    sliced = HeadSlice(whole, Share("widths", 0))
    sliced.switch(Control((), (), (heads / HEADS,)))
    empty = torch.tensor([[False] * 5, [False, True, False, True, True], [False, False, False, False, True]])
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None

    with torch.no_grad():
        answer, _ = sliced(items, items, items, key_padding_mask=empty, attn_mask=later, need_weights=False)
        copied, _ = sliced.extracted(channels)(items, items, items, key_padding_mask=empty, attn_mask=later)
        whole.out_proj.weight[:, heads * CHANNELS // HEADS :] = 0
        padded = nn.functional.pad(items, (0, CHANNELS - channels))
        expected, _ = whole(padded, padded, padded, key_padding_mask=empty, attn_mask=later)

    torch.testing.assert_close(answer, expected[..., :channels], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(copied, answer, rtol=1e-5, atol=1e-5)


@given(st.integers(1, CHANNELS))
def test_embeddings_and_layer_norms_answer_with_their_first_channels(channels: int) -> None:
    layer, norm = nn.Embedding(9, CHANNELS), nn.LayerNorm(CHANNELS)
    nn.init.normal_(norm.weight)
    looked_up = EmbeddingSlice(layer, Share("widths", 0))
    looked_up.switch(Control((), (), (channels / CHANNELS,)))
    rows = torch.arange(9)
    plain = nn.LayerNorm(channels)
    plain.load_state_dict({name: part[:channels] for name, part in norm.state_dict().items()})

    found = looked_up(rows)

    assert torch.equal(found, layer(rows)[:, : math.ceil(channels / CHANNELS * CHANNELS)])
    assert torch.equal(looked_up.extracted(looked_up.kept)(rows), found)
    assert torch.equal(LayerNormSlice(norm)(found), LayerNormSlice(norm).extracted(found.shape[1])(found))
    if found.shape[1] == channels:
        torch.testing.assert_close(LayerNormSlice(norm)(found), plain(found))


def test_slices_are_views_of_the_weights() -> None:
    layer = nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)
    sliced = HeadSlice(layer, None)
    places = {part.untyped_storage().data_ptr() for part in layer.parameters()}

    views = [*sliced.inputs(0, 7), *sliced.inputs(2, 7), *sliced.output(7)]

    assert {view.untyped_storage().data_ptr() for view in views if view is not None} == places


def test_torch_s_own_transformer_layers_can_be_sliced() -> None:
    space = ElasticSpace(
        stages=("layers.layers",),
        depths=(1, 2),
        inner=(("*.linear1",),),
        expands=(0.5, 1.0),
        outer=(("*.self_attn",),),
        widths=(0.25, 1.0),
    )
    words = torch.randint(1, 9, (4, SENTENCE))
    words[1:, 3:] = 0
    network = TransformerNetwork().eval()
    with torch.inference_mode():
        before = network(words)
    elastic = ElasticNetwork(network, space)

    torch.testing.assert_close(elastic(words), before, rtol=1e-5, atol=1e-5)
    answers = []
    for control in space.controls():
        extracted = elastic.extract(control, words[:1])
        elastic.switch(control)
        with torch.inference_mode():
            torch.testing.assert_close(elastic(words), extracted(words), rtol=1e-5, atol=1e-5)
        answers.append(elastic(words))
    assert not any(torch.equal(one, answers[-1]) for one in answers[:-1])


@pytest.mark.parametrize(
    "layer",
    [
        nn.MultiheadAttention(8, 2),
        nn.MultiheadAttention(8, 2, kdim=4, batch_first=True),
        nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True),
        nn.LayerNorm((2, 3)),
        nn.Embedding(4, 4, max_norm=1.0),
    ],
    ids=["batch-second", "two-widths", "more-keys", "two-dimensions", "greatest-norm"],
)
def test_a_layer_that_cannot_be_sliced_is_refused(layer: nn.Module) -> None:
    space = ElasticSpace(stages=(), depths=(1,), inner=(), expands=(1.0,), outer=(), widths=(1.0,))
    with pytest.raises(Misconfigured, match="no slice of"):
        ElasticNetwork(nn.Sequential(layer), space)


def test_documentation_is_parted_for_good() -> None:
    (learned, labels), (judged, _) = (TextSupernet().examples(held_out=held_out) for held_out in (False, True))

    assert not set(map(bytes, learned)) & set(map(bytes, judged))
    assert learned.shape[1] == LENGTH
    assert learned.max() < WORDS
    assert set(labels) == set(range(len(SERVICES)))
