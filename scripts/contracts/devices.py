"""Kinds of devices: what differs between them for whoever plans, launches, measures and writes of cells.

A kind that nobody here can run has no member. A new one (ROCm, TPU) is a line below, the adaptors that can use it, and
whatever asks for its driver; identities, system files and tables hold the member's text.
"""

from __future__ import annotations

from enum import StrEnum


class Device(StrEnum):
    """What a cell runs on."""

    CPU = "cpu"
    CUDA = "cuda"

    @property
    def is_accelerator(self) -> bool:
        """Whether the device is its own, with its own memory; else a process on the host stands for it."""
        return self is not Device.CPU

    @property
    def unit(self) -> str:
        """What a cell's `num_gpus` counts, in the singular."""
        return "GPU" if self.is_accelerator else "process"

    @property
    def units(self) -> str:
        """The same in the plural."""
        return "GPUs" if self.is_accelerator else "processes"

    @property
    def peak_is_measured(self) -> bool:
        """Whether every job measures the peak itself; else config/hardware.yaml has it, by the driver's name."""
        return not self.is_accelerator

    @property
    def memory_is_the_hosts(self) -> bool:
        """Whether a process is held to its share of the host's memory; else to its share of the device's."""
        return not self.is_accelerator

    @property
    def collectives(self) -> str:
        """The library through which ranks exchange tensors on it."""
        return "nccl" if self is Device.CUDA else "gloo"

    def counted(self, number: int | str) -> str:
        """Return `1 process`, `2 processes`, `1 GPU`, `48 GPUs`, `8, 16 GPUs`."""
        return f"{number} {self.unit if str(number) == '1' else self.units}"
