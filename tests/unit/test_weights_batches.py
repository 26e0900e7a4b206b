"""The two things all frameworks share, so that their losses can be compared: initial weights and batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models import weights
from models.gpt import Gpt
from models.weights import initial_weight
from workloads.training.batches import BatchReader

TINY = Gpt("tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=16, vocab_size=64)
FROZEN_HEAD = [-0.003551335306838155, -0.013823720626533031, -0.015094040893018246, 0.011988027952611446]
GPT3 = Gpt("gpt3", num_layers=96, hidden_size=12288, num_heads=96, seq_length=2048, vocab_size=50257)


@pytest.mark.parametrize("model", [TINY, GPT3, replace(TINY, tie_embeddings=True)])
def test_shapes_sum_to_the_exact_count(model: Gpt) -> None:
    assert sum(int(np.prod(shape)) for shape in model.parameter_shapes().values()) == model.num_parameters


def test_weights_are_normal_and_constants_where_they_should_be() -> None:
    matrix = initial_weight(TINY, 5, "blocks.1.feed_forward.up.weight")
    assert matrix.shape == (128, 32) and matrix.dtype == np.float32
    assert abs(matrix.mean()) < 0.001 and abs(matrix.std() - 0.02) < 0.001
    assert np.all(initial_weight(TINY, 5, "blocks.1.attention_norm.weight") == 1)
    assert np.all(initial_weight(TINY, 5, "final_norm.weight") == 1)
    assert np.all(initial_weight(TINY, 5, "blocks.0.attention.query.bias") == 0)


def test_every_parameter_and_seed_has_its_own_stream() -> None:
    query, key = (initial_weight(TINY, 5, f"blocks.0.attention.{part}.weight") for part in ("query", "key"))
    assert not np.array_equal(query, key)
    assert not np.array_equal(query, initial_weight(TINY, 6, "blocks.0.attention.query.weight"))
    assert np.array_equal(query, initial_weight(TINY, 5, "blocks.0.attention.query.weight"))


def test_weights_never_change() -> None:
    """Records of all versions, under whatever NumPy, must start from the same weights."""
    drawn = initial_weight(TINY, 1234, "head.weight").ravel()[:4]
    np.testing.assert_allclose(drawn, FROZEN_HEAD, rtol=0, atol=1e-9)


def test_an_unknown_parameter() -> None:
    with pytest.raises(KeyError, match=r"blocks\.2"):
        initial_weight(TINY, 5, "blocks.2.attention.query.weight")


def test_only_small_models_share_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights.are_shared(TINY) and not weights.are_shared(GPT3)
    monkeypatch.setattr(weights, "SHARED_WEIGHTS_LIMIT", TINY.num_parameters - 1)
    assert not weights.are_shared(TINY)


def reader(num_tokens: int = 1000, data_rank: int = 0, data_size: int = 1, vocab_size: int = 1000) -> BatchReader:
    return BatchReader(np.arange(num_tokens, dtype=np.uint16), 10, vocab_size, 8, data_rank, data_size)


def test_sequences_follow_one_another() -> None:
    batch = reader().read(2)
    assert batch.shape == (8, 11) and batch.dtype == np.int64
    assert batch[:, 0].tolist() == [160, 170, 180, 190, 200, 210, 220, 230]
    assert batch[3].tolist() == list(range(190, 201))


def test_a_small_corpus_starts_over() -> None:
    batch = reader(num_tokens=36).read(0)  # starts modulo 36 - 10 - 1 = 25
    assert batch[:, 0].tolist() == [0, 10, 20, 5, 15, 0, 10, 20]


def test_the_smallest_corpus() -> None:
    assert reader(num_tokens=12).read(7)[:, 0].tolist() == [0] * 8
    with pytest.raises(ValueError, match="11 tokens: sequences of 10 need at least 12"):
        reader(num_tokens=11)


@pytest.mark.parametrize("data_size", [1, 2, 4, 8])
def test_the_global_batch_does_not_depend_on_the_layout(data_size: int) -> None:
    shares = [reader(data_rank=rank, data_size=data_size).read(3) for rank in range(data_size)]
    np.testing.assert_array_equal(np.concatenate(shares), reader().read(3))


def test_a_memory_map_is_read_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.arange(1000, dtype="<u2").tofile(path)
    mapped = BatchReader(np.memmap(path, dtype="<u2", mode="r"), 10, 1000, 8)
    np.testing.assert_array_equal(mapped.read(4), reader().read(4))


def test_a_token_outside_the_vocabulary() -> None:
    small = reader(vocab_size=200)
    assert small.read(0).max() == 80
    with pytest.raises(ValueError, match="token id 240 in batch 2 is outside the model's vocabulary of 200"):
        small.read(2)


def test_what_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="3 data ranks cannot share 8 sequences"):
        reader(data_size=3)
    with pytest.raises(ValueError, match="no data rank 2 of 2"):
        reader(data_rank=2, data_size=2)
    with pytest.raises(ValueError, match="int32"):
        BatchReader(np.arange(1000, dtype=np.int32), 10, 1000, 8)
