"""The engine behind every torch adaptor: one optimizer step at a time, accumulated from micro-batches.

An adaptor wraps the model its way and says how one optimizer step comes about (`Step`). Torch's own frameworks say how
one global batch's gradients do (`Accumulate`), micro-batch by micro-batch (`MicroBatches`) or through a pipeline
schedule (`torch_pipelining.PipelineBatches`), and let a torch optimizer use them (`OptimizerStep`); a framework with an
engine of its own calls that. The rest is here, the same for all.
Nothing in a step waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from frameworks.torch.torch_model import LOSS_SCALE
from frameworks.torch.torch_setup import Runtime, device_name, half_type
from workloads import memory
from workloads.training.training_cell import TrainingCell

Loss = Callable[[Tensor, Tensor], Tensor]


class Accumulate(Protocol):
    """Leaves the share's gradients, synchronised over the data ranks, in the parameters.

    inputs, targets: token ids int64 [sequences, seq_length]. Returns the share's mean loss, detached; None on a rank
    that does not compute it.
    """

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None: ...


class Step(Protocol):
    """One optimizer step over the share; takes and returns what an `Accumulate` does."""

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None: ...


@dataclass(frozen=True)
class OptimizerStep:
    """Gradients as `accumulate` leaves them, applied by a torch optimizer."""

    optimizer: torch.optim.Optimizer
    accumulate: Accumulate

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.accumulate(inputs, targets)
        self.optimizer.step()
        return loss


def nothing_reported() -> Mapping[str, float]:
    """Of a framework that prints no speed of its own."""
    return {}


def mean_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token, computed in float32.

    logits: [batch, sequence, vocabulary]; targets: token ids int64 [batch, sequence].
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def always_synchronised(is_last: bool) -> AbstractContextManager[Any]:
    """The gradient synchronisation of a model without data parallelism: nothing to switch."""
    return nullcontext()


@dataclass(frozen=True)
class MicroBatches:
    """Forward and backward pass per micro-batch, gradients synchronised once, with the last.

    synchronised: called with whether the micro-batch is the last; its context holds both passes.
    """

    model: nn.Module
    cell: TrainingCell
    synchronised: Callable[[bool], AbstractContextManager[Any]] = always_synchronised
    loss: Loss = mean_token_loss

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        size = self.cell.layout.micro_batch_size
        count = self.cell.num_micro_batches
        assert len(inputs) == count * size, f"{len(inputs)} sequences are not {count} micro-batches of {size}"
        scale = LOSS_SCALE[self.cell.precision] / count
        total = torch.zeros((), device=inputs.device)
        for index, (x, y) in enumerate(zip(inputs.split(size), targets.split(size), strict=True)):
            with self.synchronised(index == count - 1):
                loss = self.loss(self.model(x), y)
                (loss * scale).backward()
            total += loss.detach()
        return total / count


class TorchEngine:
    """One rank of a torch framework (see `contracts.adaptor.Engine`).

    settings: what was chosen beyond the cell, for the record, besides what every engine here notes itself.
    report: the framework's own figures, asked for after the last batch.
    """

    def __init__(
        self,
        runtime: Runtime,
        cell: TrainingCell,
        step: Step,
        *,
        initial_weights: str,
        settings: Mapping[str, Any],
        data_rank: int = 0,
        data_size: int = 1,
        report: Callable[[], Mapping[str, float]] = nothing_reported,
    ) -> None:
        self.data_rank = data_rank
        self.data_size = data_size
        self.device_name = device_name(runtime.device)
        self.initial_weights = initial_weights
        self.settings: Mapping[str, Any] = {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            **settings,
        }
        self._runtime = runtime
        self._on_cuda = runtime.device.type == "cuda"
        self._matmul_type = half_type(cell.precision) or torch.float32
        self._step = step
        self._report = report
        self._peak_is_known = True

    def load(self, tokens: np.ndarray) -> tuple[Tensor, Tensor]:
        """This rank's share, int64 [sequences, seq_length + 1], as inputs and targets on the device."""
        on_device = torch.from_numpy(tokens).to(self._runtime.device)
        return on_device[:, :-1].contiguous(), on_device[:, 1:].contiguous()

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor | None:
        """One optimizer step; returns the share's mean loss, still on its way on a GPU."""
        return self._step(*batch)

    def wait(self) -> None:
        """Return when the device is done.

        On the CPU a step has already waited: operators run in the caller's thread, and every gloo transfer is waited
        for before its result is used (gradients and losses by the optimizer and the sum of losses) or, where a
        pipeline stage only sends, by the schedule.
        """
        if self._on_cuda:
            torch.cuda.synchronize(self._runtime.device)

    def read_loss(self, loss: Tensor | None) -> float | None:
        """The share's mean loss in nats per token; None on a pipeline stage that does not compute it."""
        return None if loss is None else loss.item()

    def reported_by_framework(self) -> Mapping[str, float]:
        """See `contracts.adaptor.Engine`."""
        return self._report()

    @property
    def num_threads(self) -> int:
        """The threads that torch computes one operator with."""
        return torch.get_num_threads()

    def barrier(self) -> None:
        """Return when every rank has come here."""
        if not self._runtime.grouped:
            return
        if self._on_cuda:
            dist.barrier(device_ids=[self._runtime.device.index])
            torch.cuda.synchronize(self._runtime.device)
        else:
            dist.barrier()

    def reset_peak_memory(self) -> None:
        """Start the peak anew."""
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats(self._runtime.device)
        else:
            self._peak_is_known = memory.reset_peak_resident()

    def peak_memory_bytes(self) -> int | None:
        """Since the reset: what torch's allocator handed out on the GPU, or this process's resident memory."""
        if self._on_cuda:
            return torch.cuda.max_memory_allocated(self._runtime.device)
        return memory.peak_resident_bytes() if self._peak_is_known else None

    def matmul_seconds(self, size: int, repeats: int) -> list[float]:
        """Seconds each of `repeats` products of two size x size matrices took on the CPU, after one to warm up."""
        if self._on_cuda:
            raise ValueError("the matmul rate is measured on CPUs only; a GPU's peak comes from config/hardware.yaml")
        left = torch.rand(size, size).to(self._matmul_type)
        right = torch.rand(size, size).to(self._matmul_type)
        product = left @ right
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            torch.mm(left, right, out=product)
            seconds.append(time.perf_counter() - started)
        return seconds

    def close(self) -> None:
        """Leave the process group."""
        if self._runtime.grouped and dist.is_initialized():
            dist.destroy_process_group()


def optimizer_engine(
    runtime: Runtime,
    cell: TrainingCell,
    optimizer: torch.optim.Optimizer,
    accumulate: Accumulate,
    *,
    initial_weights: str,
    data_rank: int = 0,
    data_size: int = 1,
) -> TorchEngine:
    """The engine of torch's own frameworks, whose optimizer is `torch_model.make_optimizer`'s."""
    return TorchEngine(
        runtime,
        cell,
        OptimizerStep(optimizer, accumulate),
        initial_weights=initial_weights,
        settings={"optimizer": "torch.optim.AdamW(fused=True)", "loss_scale": LOSS_SCALE[cell.precision]},
        data_rank=data_rank,
        data_size=data_size,
    )
