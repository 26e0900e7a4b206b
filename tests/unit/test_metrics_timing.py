"""Batch times from stamps made up by hand."""

import copy

import pytest

from factories import make_cell, make_record
from metrics.timing import timing_of_ranks


def ranks(num_gpus=2, times=1.0, **changes):
    return copy.deepcopy(make_record(make_cell(num_gpus=num_gpus), 1, times, **changes)["ranks"])


def test_mean_and_deviation_of_the_last_ten_of_eleven():
    timing = timing_of_ranks(ranks(times=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], warmup_s=1000.0))
    assert timing.batch_time_s == pytest.approx(5.5)
    # Squared distances from 5.5: 2 * (0.25 + 2.25 + 6.25 + 12.25 + 20.25) = 82.5; over nine: 9.1666...
    assert timing.batch_time_std_s == pytest.approx(3.0276503540974917)
    assert timing.warmup_batch_time_s == 1000.0


def test_a_batch_takes_as_long_as_its_slowest_rank():
    both = ranks()
    # Rank 1 is slow in the first timed batch by 1 s, rank 0 in the second by 3 s; both wait for one another.
    for rank, lengths in zip(both, ([1.0, 4.0], [2.0, 1.0]), strict=True):
        starts = [0.0, 10.0, 12.0] + [16.0 + i for i in range(8)]
        rank["batch_start_s"] = starts
        rank["batch_end_s"] = [1.0, 10.0 + lengths[0], 12.0 + lengths[1]] + [17.0 + i for i in range(8)]
    timing = timing_of_ranks(both)
    assert timing.batch_time_s == pytest.approx((2 + 4 + 8 * 1) / 10)
    assert timing.window_batch_time_s == pytest.approx(1.4)  # from 10 to 24, of ten batches
    assert timing.timing_check == "outlier"  # four times the median; but no window and no drift


def test_input_is_apart_and_the_window_holds_it():
    both = ranks()
    for rank in both:
        rank["batch_start_s"] = [1.25 * i for i in range(11)]
        rank["batch_end_s"] = [1.25 * i + 1.0 for i in range(11)]
        rank["input_time_s"] = [9.0] + [0.25] * 10
    both[1]["input_time_s"][5] = 0.05
    timing = timing_of_ranks(both)
    assert timing.batch_time_s == pytest.approx(1.0)
    assert timing.input_time_s == pytest.approx(0.25)
    assert timing.window_batch_time_s == pytest.approx((9 * 1.25 + 1.0) / 10)
    assert timing.timing_check == "ok"


def test_window_that_is_longer_than_its_batches_is_flagged():
    both = ranks()
    both[0]["batch_end_s"] = [start + 0.5 for start in both[0]["batch_start_s"]]
    both[1]["batch_end_s"] = [start + 0.5 for start in both[1]["batch_start_s"]]
    timing = timing_of_ranks(both)
    assert timing.timing_check == "window"
    assert "9.5 s" in timing.notes[0] and "5 s" in timing.notes[0]


def test_drift_names_the_columns_its_numbers_stand_in():
    timing = timing_of_ranks(ranks(times=[18, 30, 45, 60, 75, 90, 110, 130, 150, 160]))
    assert (timing.first_half_batch_time_s, timing.second_half_batch_time_s) == (45, 130)
    assert "drift" in timing.timing_check
    assert "from 45 s a batch in the first half (first_half_batch_time_s)" in timing.notes[0]
    assert "to 130 s in the second (second_half_batch_time_s)" in timing.notes[0]


def test_one_slow_batch_of_ten_is_an_outlier_that_the_median_does_not_feel():
    timing = timing_of_ranks(ranks(times=[0.5] * 6 + [30.0] + [0.5] * 3))
    assert timing.batch_time_s == pytest.approx(3.45)  # 9 x 0.5 + 30, over ten
    assert timing.batch_time_median_s == timing.first_half_batch_time_s == timing.second_half_batch_time_s == 0.5
    assert timing.timing_check == "outlier"
    assert timing.notes == (
        "timing: 1 of 10 batches far from the median of 0.5 s (batch_time_median_s), the farthest took 30 s, and the "
        "mean is 3.45 s",
    )


@pytest.mark.parametrize(
    ("times", "num_outliers"),
    [
        ([1.0, 1.05, 0.95, 1.0, 1.9, 1.0, 1.0, 1.1, 1.0, 0.9], 0),  # jitter, however steady the rest
        ([1.0] * 9 + [2.1], 1),
        ([1.0] * 9 + [0.4], 1),  # a batch that is too fast is as odd
        ([1.0, 5.0] * 3 + [1.0] * 4, 3),
    ],
)
def test_an_outlier_is_twice_or_half_the_median(times, num_outliers):
    timing = timing_of_ranks(ranks(times=times))
    assert timing.timing_check == ("outlier" if num_outliers else "ok")
    assert [f"{num_outliers} of 10" in note for note in timing.notes] == [True] * bool(num_outliers)


def test_other_numbers_of_batches_and_wrong_stamps_are_refused():
    short = ranks()
    short[1]["batch_end_s"].pop()
    with pytest.raises(ValueError, match="rank 1 has 10 values in batch_end_s, not 11"):
        timing_of_ranks(short)
    with pytest.raises(ValueError, match="no rank"):
        timing_of_ranks([])
    backwards = ranks()
    backwards[0]["batch_end_s"][3] = backwards[0]["batch_start_s"][3] - 1
    with pytest.raises(ValueError, match="ends before it starts"):
        timing_of_ranks(backwards)
