"""Peaks: looked up letter for letter, or measured."""

import copy

import pytest
import yaml

from contracts.devices import Device
from factories import HARDWARE, ROOT, make_cell, make_record
from metrics.peaks import machine_peaks, measured_peak, peak_of_record
from settings.config import read_config
from settings.hardware import peak_for_device


def gpu_ranks(*names):
    cell = make_cell(num_gpus=len(names), device="cuda")
    record = make_record(cell)
    for rank, name in zip(record["ranks"], names, strict=True):
        rank["device_name"] = name
    return record["ranks"]


def test_by_key_and_by_driver_name():
    assert peak_for_device(HARDWARE, "V100") == 125e12
    assert peak_for_device(HARDWARE, "Tesla V100-SXM2-16GB") == 125e12


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB MIG 3g.20gb", "a100", "V100-SXM2-16GB"])
def test_unknown_device_is_an_error_that_says_what_to_add(name):
    with pytest.raises(ValueError, match="add an entry") as error:
        peak_for_device(HARDWARE, name)
    assert name in str(error.value) and "peak_half_precision_flops_per_s" in str(error.value)
    # A slice is not the GPU that it is a slice of.
    assert ("if it is a" in str(error.value)) == ("MIG" not in name)


def test_one_name_in_two_entries_is_refused():
    twice = copy.deepcopy(HARDWARE)
    twice["A100"]["driver_names"].append("Tesla V100-SXM2-16GB")
    with pytest.raises(ValueError, match="both V100 and A100"):
        peak_for_device(twice, "V100")


def test_measured_peak_is_the_mean_over_ranks_of_the_best_product():
    ranks = make_record(make_cell(num_gpus=2))["ranks"]
    ranks[0]["matmul_seconds"] = [0.4, 0.02, 0.1]  # 2 * 1000^3 / 0.02 = 1e11
    ranks[1]["matmul_seconds"] = [0.01, 0.03]  # 2e11
    assert measured_peak(ranks) == pytest.approx(1.5e11)
    ranks[1]["matmul_seconds"] = []
    peak = peak_of_record(HARDWARE, Device.CPU, ranks)
    assert peak.flops_per_s is None and "no matrix product" in peak.note


def test_unknown_and_mixed_devices_leave_the_peak_empty_with_a_note():
    unknown = peak_of_record(HARDWARE, Device.CUDA, gpu_ranks("NVIDIA X1", "NVIDIA X1"))
    assert unknown.flops_per_s is None and "'NVIDIA X1'" in unknown.note
    mixed = peak_of_record(HARDWARE, Device.CUDA, gpu_ranks("V100", "A100"))
    assert mixed.flops_per_s is None and "2 device kinds (A100, V100)" in mixed.note


def test_shipped_table_is_valid_and_has_the_papers_peak():
    hardware = read_config(ROOT / "config" / "hardware.yaml", "hardware", ROOT)
    assert peak_for_device(hardware, "Tesla V100-SXM2-16GB") == 125e12
    # Dense, not the doubled rates of the data sheets.
    assert peak_for_device(hardware, "NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_for_device(hardware, "NVIDIA H100 80GB HBM3") < 1e15
    assert all(type(entry["peak_half_precision_flops_per_s"]) is float for entry in hardware.values())
    schema = yaml.safe_load((ROOT / "workflow" / "schemas" / "hardware.schema.yaml").read_text())
    properties = schema["additionalProperties"]["properties"]
    assert all(rule["description"] for rule in properties.values())


def peak_rows(*rates: float | None, **common: object) -> list[dict[str, object]]:
    like = {"num_gpus": 1, "precision": "fp32", "device_name": "CPU", "threads_per_process": 2}
    return [{**like, **common, "own_peak_flops_per_gpu": rate} for rate in rates]


def test_the_machines_peak_is_the_highest_that_like_jobs_measured() -> None:
    """By hand: of 105, 74, 149, 130 the highest is 149; 74 is 50 % below it, 105 30 %, 130 13 %."""
    peaks = machine_peaks(peak_rows(105e9, 74e9, 149e9, 130e9))
    assert {(peak.flops_per_s, peak.num_cells) for peak in peaks.values()} == {(149e9, 4)}
    assert [bool(peaks[index].note) for index in range(4)] == [True, True, False, False]
    assert peaks[1].note == (
        "the host was shared or slowed down: this job's own matrix products ran at 74 GFLOP/s a process, 50 % below "
        "the best of 4 like jobs, so its times may be too long"
    )


@pytest.mark.parametrize(
    "other", [{"num_gpus": 2}, {"precision": "bf16"}, {"device_name": "CPU 2"}, {"threads_per_process": 1}]
)
def test_only_like_jobs_share_a_peak(other: dict[str, object]) -> None:
    peaks = machine_peaks([*peak_rows(100e9, 90e9), *peak_rows(50e9, None, **other)])
    assert [(peaks[index].flops_per_s, peaks[index].num_cells) for index in range(3)] == [
        (100e9, 2),
        (100e9, 2),
        (50e9, 1),
    ]
    assert 3 not in peaks, "a row without a measured rate has no measured peak"


@pytest.mark.parametrize(("size", "seconds"), [(-1000, 0.01), (1000, 1e-320)])
def test_a_rate_that_no_processor_has_is_refused(size: int, seconds: float) -> None:
    ranks = make_record(make_cell(), check=False)["ranks"]
    ranks[0] |= {"matmul_size": size, "matmul_seconds": [seconds]}
    with pytest.raises(ValueError, match="which no processor does"):
        measured_peak(ranks)
