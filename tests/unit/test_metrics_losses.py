"""Global losses from the ranks' losses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.losses import global_losses, losses_from_text, losses_to_text, max_relative_difference


def rank(data_rank, data_size, losses):
    return {"data_rank": data_rank, "data_size": data_size, "losses": losses}


def test_mean_over_shares_counts_duplicates_once():
    # Share 0 is on two tensor-parallel ranks, share 1 on one that holds it and one (an earlier stage) that does not.
    ranks = [rank(0, 2, [2.0, 1.0]), rank(0, 2, [2.0, 1.0]), rank(1, 2, [4.0, 2.0]), rank(1, 2, [None, None])]
    assert global_losses(ranks) == [3.0, 1.5]


def test_strings_for_what_json_cannot_hold():
    losses = global_losses([rank(0, 2, ["nan", 1.0, "inf"]), rank(1, 2, [1.0, "-inf", 1.0])])
    assert math.isnan(losses[0]) and losses[1:] == [-math.inf, math.inf]
    assert math.isnan(global_losses([rank(0, 1, ["nan"]), rank(0, 1, ["nan"])])[0])


def test_disagreeing_missing_and_uneven_losses_are_refused():
    with pytest.raises(ValueError, match="share 0 disagree in batch 2"):
        global_losses([rank(0, 1, [1.0, 2.0]), rank(0, 1, [1.0, 2.01])])
    with pytest.raises(ValueError, match="1 of 2 shares"):
        global_losses([rank(0, 2, [1.0]), rank(1, 2, [None])])
    with pytest.raises(ValueError, match="1, 2 batches"):
        global_losses([rank(0, 2, [1.0]), rank(1, 2, [1.0, 2.0])])
    with pytest.raises(ValueError, match="no rank"):
        global_losses([])


@given(st.lists(st.floats(), max_size=11))
def test_text_reads_back_as_the_same_numbers(losses):
    back = losses_from_text(losses_to_text(losses))
    assert len(back) == len(losses)
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(losses, back, strict=True))


def test_max_relative_difference():
    assert max_relative_difference([2.0, 4.1], [2.0, 4.0]) == pytest.approx(0.025)
    assert max_relative_difference([math.nan], [1.0]) == math.inf
    assert max_relative_difference([0.0], [0.0]) == 0.0
    with pytest.raises(ValueError, match="1 batches cannot be compared with those of 2"):
        max_relative_difference([1.0], [1.0, 2.0])
