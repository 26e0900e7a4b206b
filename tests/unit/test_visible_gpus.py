"""CUDA_VISIBLE_DEVICES as CUDA reads it, and slices of a GPU that are not taken for the whole; without a driver."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from contracts.errors import ConfigError
from planning.checks import check_peak
from settings.gpus import Gpu, visible_gpus, visible_indices
from settings.systems import system_from_config

UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-bb33"]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("+1", [1]),
        ("1gpu,2", [1, 2]),
        # The first entry that is none hides all that follow.
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("0,,1", [0]),
        ("void", []),
        ("NoDevFiles", []),
        ("0,void,1", [0]),
        ("0,99999999999999999999", [0]),
        # A GPU twice is an error of CUDA's, and none is left.
        ("0,0", []),
        ("GPU-aa11,GPU-aa", []),
        # UUIDs, or as much of them as names one GPU.
        ("GPU-bb33,GPU-aa11", [2, 0]),
        ("GPU-b", [2]),
        ("GPU-a", []),
        ("GPU-aa,GPU-zz,GPU-b", [0]),
        ("GPU-aa,1", [0]),
        ("1,GPU-aa", [1]),
        ("MIG-aa11", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(variable: str | None, expected: list[int]) -> None:
    assert visible_indices(variable, UUIDS) == expected


class NvmlDouble(ModuleType):
    """Test double: the few functions of NVML that are asked, over GPUs that are given."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        """As in pynvml, what every function raises."""

    def __init__(self, gpus: list[Gpu] | None) -> None:
        super().__init__("pynvml")
        self.gpus = gpus

    def nvmlInit(self) -> None:
        if self.gpus is None:
            raise self.NVMLError("no driver")

    def nvmlShutdown(self) -> None:
        """Nothing was opened."""

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus or [])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        assert self.gpus
        return self.gpus[index]

    def nvmlDeviceGetName(self, handle: Gpu) -> str:
        return handle.name

    def nvmlDeviceGetUUID(self, handle: Gpu) -> str:
        return handle.uuid

    def nvmlDeviceGetMigMode(self, handle: Gpu) -> list[int]:
        if "A100" not in handle.name:
            raise self.NVMLError("not supported")
        return [int(handle.is_sliced), 0]


@pytest.fixture
def use_nvml(monkeypatch: pytest.MonkeyPatch):
    def use(gpus: list[Gpu] | None, variable: str | None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", NvmlDouble(gpus))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if variable is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)

    return use


V100, A100 = Gpu("Tesla V100-SXM2-16GB", "GPU-v"), Gpu("NVIDIA A100-SXM4-40GB", "GPU-a")
SLICED = Gpu(A100.name, A100.uuid, is_sliced=True)


@pytest.mark.parametrize(
    ("gpus", "variable", "expected"),
    [
        (None, None, ()),
        (None, "0", ()),
        ([V100, A100], None, (V100.name, A100.name)),
        ([V100, A100], "GPU-a", (A100.name,)),
        ([V100, A100], "void", ()),
        ([V100, SLICED], "0", (V100.name,)),
    ],
)
def test_the_names_are_of_the_gpus_that_are_left(use_nvml, gpus, variable, expected) -> None:
    use_nvml(gpus, variable)
    assert visible_gpus() == expected


@pytest.mark.parametrize(
    ("gpus", "variable"), [([A100], "MIG-GPU-a/1/0"), ([SLICED], "MIG-1234"), ([SLICED], None), ([V100, SLICED], "1")]
)
def test_a_slice_is_not_called_by_the_whole_gpus_name(use_nvml, gpus: list[Gpu], variable: str | None) -> None:
    use_nvml(gpus, variable)
    config = {"device": "auto", "devices": [], "gpus_per_node": "auto", "num_nodes": 1}
    with pytest.raises(ValueError, match=r"the peak of a slice \(MIG\) is not known.*config/hardware.yaml"):
        system_from_config("local", config)


def test_a_slice_is_not_hinted_to_be_the_whole_gpu() -> None:
    hardware = {"A100": {"driver_names": [A100.name]}}
    for name, hinted in ((f"{A100.name} MIG 3g.20gb", False), (f"{A100.name[:-1]}", True)):
        with pytest.raises(ConfigError, match="is not known") as error:
            check_peak("config/systems/local.yaml", name, hardware)
        assert ("did you mean" in str(error.value)) == hinted
