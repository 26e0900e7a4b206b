"""The torch model: its size, its names, its stages, its checkpointing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from factories import PAPER_12B
from frameworks.torch.decoder import CHECKPOINTING_MODES, GPT
from models.gpt import Gpt
from models.weights import initial_weight

pytestmark = pytest.mark.usefixtures("one_thread")

CPU_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
TINY = Gpt("tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=16, vocab_size=64)


class OperatorCounts(TorchDispatchMode):
    """Counts the operators that run, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


def loaded(model: Gpt, checkpointing: str = "none", blocks: range | None = None) -> GPT:
    gpt = GPT(model, blocks=blocks, checkpointing=checkpointing)
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            parameter.copy_(torch.from_numpy(initial_weight(model, 1, name)))
    return gpt


def tokens(model: Gpt, sequences: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, model.vocab_size, (sequences, model.seq_length), generator=generator)


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_parameters_are_those_of_the_neutral_weights(tie_embeddings: bool) -> None:
    model = replace(TINY, tie_embeddings=tie_embeddings)
    parameters = dict(GPT(model).named_parameters())
    assert {name: tuple(value.shape) for name, value in parameters.items()} == model.parameter_shapes()
    assert sum(value.numel() for value in parameters.values()) == model.num_parameters


def test_twelve_billion_parameters_cost_nothing_on_the_meta_device() -> None:
    with torch.device("meta"):
        gpt = GPT(PAPER_12B, blocks=range(0, 4))
    per_layer = 12 * 4512**2 + 13 * 4512
    assert sum(value.numel() for value in gpt.parameters()) == 51200 * 4512 + 512 * 4512 + 4 * per_layer


def test_stages_in_a_row_are_the_whole_model() -> None:
    whole, first, last = (loaded(TINY, blocks=blocks) for blocks in (None, range(0, 1), range(1, 2)))
    names = [*dict(first.named_parameters()), *dict(last.named_parameters())]
    assert sorted(names) == sorted(TINY.parameter_shapes())
    x = tokens(TINY)
    activations = first(x)
    assert activations.shape == (2, TINY.seq_length, TINY.hidden_size)
    torch.testing.assert_close(last(activations), whole(x))


def test_a_token_sees_only_what_stands_before_it() -> None:
    gpt, x = loaded(TINY), tokens(TINY)
    changed = x.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % TINY.vocab_size
    logits, logits_changed = gpt(x), gpt(changed)
    torch.testing.assert_close(logits[:, :10], logits_changed[:, :10])
    assert not torch.allclose(logits[:, 10], logits_changed[:, 10])


def test_one_layer_against_the_formulas_written_out() -> None:
    model = replace(TINY, num_layers=1)
    x = tokens(model)
    w = {name: torch.from_numpy(initial_weight(model, 1, name)) for name in model.parameter_shapes()}

    def norm(y: torch.Tensor, name: str) -> torch.Tensor:
        centred = y - y.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / deviation * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(y: torch.Tensor, name: str) -> torch.Tensor:
        return y @ w[f"blocks.0.{name}.weight"].T + w[f"blocks.0.{name}.bias"]

    h = w["token_embedding.weight"][x] + w["position_embedding.weight"]
    y = norm(h, "blocks.0.attention_norm")
    q, k, v = (linear(y, f"attention.{part}").view(2, 16, 4, 8).transpose(1, 2) for part in ("query", "key", "value"))
    scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(torch.ones(16, 16).triu(1).bool(), float("-inf"))
    h = h + linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 32), "attention.output")
    y = linear(norm(h, "blocks.0.feed_forward_norm"), "feed_forward.up")
    y = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))
    h = h + linear(y, "feed_forward.down")
    expected = norm(h, "final_norm") @ w["head.weight"].T
    torch.testing.assert_close(loaded(model)(x), expected, rtol=1e-4, atol=1e-6)


def counts_and_gradients(checkpointing: str) -> tuple[Counter[str], list[torch.Tensor]]:
    gpt = loaded(TINY, checkpointing)
    with OperatorCounts() as operators:
        gpt(tokens(TINY)).square().mean().backward()
    return operators.counts, [parameter.grad for parameter in gpt.parameters()]


def test_checkpointing_recomputes_what_it_says_and_changes_no_gradient() -> None:
    results = {mode: counts_and_gradients(mode) for mode in CHECKPOINTING_MODES}
    gelu, product, attention = (
        {mode: counts[name] for mode, (counts, _) in results.items()}
        for name in ("aten.gelu.default", "aten.addmm.default", CPU_ATTENTION)
    )
    layers, products_per_layer = TINY.num_layers, 6
    assert gelu == {"none": layers, "full": 2 * layers, "selective": 2 * layers}
    assert attention == {"none": layers, "full": 2 * layers, "selective": layers}
    assert product["selective"] == product["none"]
    # The recomputation may stop before the layer's last product, whose output no gradient needs.
    extra = product["full"] - product["none"]
    assert layers * (products_per_layer - 1) <= extra <= layers * products_per_layer
    for mode in ("full", "selective"):
        for ours, reference in zip(results[mode][1], results["none"][1], strict=True):
            torch.testing.assert_close(ours, reference)


def test_autocast_keeps_weights_and_gradients_in_float32() -> None:
    gpt = GPT(TINY, autocast_dtype=torch.bfloat16)
    logits = gpt(tokens(TINY))
    logits.float().square().mean().backward()
    assert logits.dtype == torch.bfloat16
    assert {parameter.grad.dtype for parameter in gpt.parameters()} == {torch.float32}


@pytest.mark.parametrize("blocks", [range(1, 3), range(2, 1), range(0, 2, 2)])
def test_a_stage_the_model_does_not_have(blocks: range) -> None:
    with pytest.raises(ValueError, match="no stage"):
        GPT(TINY, blocks=blocks)


def test_tied_embeddings_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="tied"):
        GPT(replace(TINY, tie_embeddings=True), blocks=range(0, 1))


def test_an_unknown_checkpointing_mode() -> None:
    with pytest.raises(ValueError, match="'some' is none of none, full, selective"):
        GPT(TINY, checkpointing="some")
