"""The NVIDIA GPUs that a process may use: those of the driver that CUDA_VISIBLE_DEVICES leaves, as CUDA reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

GPU_PREFIX, SLICE_PREFIX = "GPU-", "MIG-"


@dataclass(frozen=True)
class Gpu:
    """A whole GPU as the driver names it; `is_sliced` where programs get a part of it (MIG) and never the whole."""

    name: str
    uuid: str
    is_sliced: bool = False


def visible_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that this process may use, as the driver gives them; none where there is no driver.

    Raises ValueError where it may use a slice of a GPU: the whole card's name, and so its peak, would be wrong.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = driver_gpus()
    visible = [gpus[index] for index in visible_indices(variable, [gpu.uuid for gpu in gpus])]
    names_slice = variable is not None and variable.strip().startswith(SLICE_PREFIX)
    if (gpus and names_slice) or any(gpu.is_sliced for gpu in visible):
        where = f"CUDA_VISIBLE_DEVICES is {variable}" if names_slice else f"a {visible[0].name} is divided into slices"
        raise ValueError(
            f"{where}: the peak of a slice (MIG) is not known, and it is not the whole GPU's. Use whole GPUs; or write "
            "the slice with its own peak into config/hardware.yaml and name it here: device: cuda, devices: [...], "
            "gpus_per_node"
        )
    return tuple(gpu.name for gpu in visible)


def is_slice(device_name: str) -> bool:
    """Return whether a name is that of a slice of a GPU, such as `NVIDIA A100-SXM4-40GB MIG 3g.20gb`."""
    return re.search(r"\bMIG\b", device_name) is not None


def driver_gpus() -> list[Gpu]:
    """Return all GPUs that the driver knows, in its order; none where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle), _is_sliced(handle))
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()


def visible_indices(variable: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; without a value all.

    The first entry says whether all are numbers or beginnings of UUIDs. The first that is neither, or names no GPU or
    more than one, hides itself and all after it; a GPU that is named twice hides all.
    """
    if variable is None:
        return list(range(len(uuids)))
    entries = [entry.strip() for entry in variable.split(",")]
    by_uuid = entries[0].startswith(GPU_PREFIX)
    chosen: list[int] = []
    for entry in entries:
        index = _index_of_uuid(entry, uuids) if by_uuid else _index_of_number(entry, len(uuids))
        if index is None:
            return chosen
        if index in chosen:
            return []
        chosen.append(index)
    return chosen


def _index_of_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    if not entry.startswith(GPU_PREFIX):
        return None
    found = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _index_of_number(entry: str, count: int) -> int | None:
    """CUDA reads the digits that an entry begins with."""
    number = re.match(r"\+?([0-9]+)", entry)
    return int(number[1]) if number and int(number[1]) < count else None


def _is_sliced(handle: object) -> bool:
    import pynvml

    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # a GPU that cannot be divided
        return False
    return current == pynvml.NVML_DEVICE_MIG_ENABLE
