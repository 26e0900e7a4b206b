"""Lets a package that only knows CUDA train on a CPU, so that its training can be checked where there is no GPU.

Where torch sees a CUDA device this module changes nothing. Elsewhere it answers the handful of calls that such packages
make without asking (`torch.cuda.set_device`, `device="cuda"`, the backend "nccl") with their CPU counterparts. What is
computed and communicated stays the package's own; its speed on a CPU means little, so engines put what `stand_in`
returns into the record (`cuda_stand_in` of its settings), and tables mark such cells.

Call it before the package is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Factory functions of torch to which such packages say device="cuda".
FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")


def stand_in(package: str) -> str | None:
    """Put the CPU in CUDA's place for this process; returns what to record, or None where CUDA is there.

    package: which one needs it, for the record.
    """
    if torch.cuda.is_available():
        return None
    _replace()
    return f"{package} believes to be on CUDA: device calls, nccl and device='cuda' are answered by the CPU and gloo"


@functools.cache
def _replace() -> None:
    """Once a process, whoever asks."""
    _replace_device_calls()
    _replace_factories()
    _replace_type_names()
    _replace_communication()


def _replace_device_calls() -> None:
    cuda = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(cuda, name, _make_nothing())  # one each: torch.compile wants to know them apart
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    # Megatron-core sets states of random numbers past set_rng_state: in calls that torch keeps until CUDA starts.
    cuda.default_generators = {cuda.current_device(): torch.default_generator}
    cuda._lazy_call = lambda call, **_: call()
    torch.Tensor.cuda = lambda self, *_, **__: self


def _replace_factories() -> None:
    """By name, because a TorchFunctionMode does not reach the backward pass."""
    for name in FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:

    @functools.wraps(factory)
    def made(*arguments: Any, **options: Any) -> Any:
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        return factory(*arguments, **options)

    return made


def _replace_type_names() -> None:
    """Megatron-core tells number formats apart by names like torch.cuda.HalfTensor."""
    type_of = torch.Tensor.type

    @functools.wraps(type_of)
    def named_as_on_cuda(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        answer = type_of(tensor, *arguments, **options)
        return answer.replace("torch.", "torch.cuda.", 1) if isinstance(answer, str) else answer

    torch.Tensor.type = named_as_on_cuda


def _replace_communication() -> None:
    new_group, barrier, gather = dist.new_group, dist.barrier, dist.all_gather_into_tensor

    @functools.wraps(new_group)
    def gloo_group(*arguments: Any, **options: Any) -> Any:
        if options.get("backend") == "nccl":
            options["backend"] = "gloo"
        return new_group(*arguments, **options)

    @functools.wraps(barrier)
    def plain_barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(group=group, async_op=async_op)

    @functools.wraps(gather)
    def gather_scalars_too(output: torch.Tensor, given: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return gather(output, given.reshape(1) if given.dim() == 0 else given, *arguments, **options)

    dist.new_group, dist.barrier, dist.all_gather_into_tensor = gloo_group, plain_barrier, gather_scalars_too


def _make_nothing() -> Callable[..., None]:
    return lambda *_, **__: None
