"""Data parallelism under torch: replicas (DDP, or over tensor shards) and shards (FSDP2), and when they synchronise.

`synchronised_by_...` give the `synchronised` of `torch_engine.MicroBatches`: gradients cross the network once a step,
with the last micro-batch's backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from frameworks.torch.decoder import GPT
from frameworks.torch.torch_setup import half_type

Synchronised = Callable[[bool], AbstractContextManager[Any]]


def replicate_with_ddp(model: GPT, device: torch.device, group: ProcessGroup | None = None) -> DistributedDataParallel:
    """`model` under DDP over `group` (all ranks when None); it must hold the same weights on every rank already."""
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        process_group=group,
        init_sync=False,
        gradient_as_bucket_view=True,
    )


def synchronised_by_ddp(model: DistributedDataParallel) -> Synchronised:
    """Gradients are all-reduced with the last micro-batch."""
    return lambda is_last: nullcontext() if is_last else model.no_sync()


def shard_fully(model: GPT, mesh: DeviceMesh, precision: str, *, reshard_after_forward: bool) -> None:
    """FSDP2 over `mesh`: one group of parameters per block and one for the rest.

    Half-precision cells gather their parameters and compute in the half type, and reduce gradients in float32.
    """
    policy = MixedPrecisionPolicy()
    if (dtype := half_type(precision)) is not None:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    # The outermost parameters are wanted again as soon as the backward pass begins: gathering them twice gains nothing.
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def replicate_shards(model: GPT, mesh: DeviceMesh) -> None:
    """Replicas over `mesh` of a model whose parameters are tensor shards already, reduced per block.

    Not the older `_composable.replicate`, nor DDP alone: over DTensor parameters both run and train with wrong
    gradients, without a word.
    """
    for block in model.blocks.values():
        replicate(block, mesh=mesh)
    replicate(model, mesh=mesh)


def synchronised_by_fsdp(model: FSDPModule) -> Synchronised:
    """Gradients are reduced with the last micro-batch; for `shard_fully` and for `replicate_shards`."""

    def switch(is_last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(is_last)
        return nullcontext()

    return switch
