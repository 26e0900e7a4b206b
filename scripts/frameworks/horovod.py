"""Horovod: a whole model on every device, gradients averaged over the ranks by `hvd.DistributedOptimizer`.

Horovod's own thread takes each gradient when the last micro-batch's backward pass has computed it, and fuses small
ones; on GPUs they go through NCCL, on a CPU through gloo. No horovodrun is needed: rank 0 starts the rendezvous server
at which Horovod's processes find one another, and the others learn of it through the store at which the ranks of every
torch framework meet (`frameworks.torch.torch_setup.meet`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.adaptor import Engine, Framework, Job, NotAvailable
from contracts.devices import Device
from contracts.placement import host_name
from contracts.shown_as import ShownAs
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(version=1, environment="horovod", parallelism=frozenset({"data"}), packages=("torch", "horovod"))

BUILD_IT = "build it with envs/horovod.sh, the environment's bin being first on PATH"


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("Horovod", style=7)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    return torch_reason(cell)


def create_engine(job: Job) -> Engine:
    """The model as it is, and an optimizer that waits for everybody's gradients."""
    hvd = import_horovod(job.cell.device)
    from frameworks.torch.torch_engine import MicroBatches, TorchEngine
    from frameworks.torch.torch_model import LOSS_SCALE, build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start

    class HorovodEngine(TorchEngine):
        """Without torch.distributed: its barrier and its end are Horovod's."""

        def barrier(self) -> None:
            hvd.barrier()
            self.wait()

        def close(self) -> None:
            hvd.shutdown()

    cell = job.cell
    runtime = start(job, process_group=False)
    join(job)
    model = build_on_meta(cell)
    initial_weights = materialize(model, cell, runtime.device)
    # Gradients of a step's micro-batches are added up, not averaged: each loss is its part of the mean already.
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(model.parameters(), cell),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=cell.num_micro_batches,
    )
    return HorovodEngine(
        runtime,
        cell,
        HorovodStep(optimizer, MicroBatches(model, cell)),
        initial_weights=initial_weights,
        settings={
            "optimizer": "hvd.DistributedOptimizer(torch.optim.AdamW(fused=True))",
            "loss_scale": LOSS_SCALE[cell.precision],
            "all_reduce": cell.device.collectives,
        },
        data_rank=job.rank,
        data_size=job.world_size,
    )


@dataclass(frozen=True)
class HorovodStep:
    """One optimizer step; Horovod's optimizer begins to reduce gradients while they are computed."""

    optimizer: Any
    accumulate: Any

    def __call__(self, inputs: Any, targets: Any) -> Any:
        self.optimizer.zero_grad()  # without an argument: Horovod's takes none
        loss = self.accumulate(inputs, targets)
        self.optimizer.step()
        return loss


def import_horovod(device: Device) -> Any:
    """The module `horovod.torch`, built for `device`; NotAvailable says how to get it."""
    try:
        import horovod.torch as hvd
    except ModuleNotFoundError as error:
        if error.name != "horovod":
            raise
        raise NotAvailable(f"Horovod is not installed: {BUILD_IT}") from error
    if not hasattr(hvd, "init"):  # it prints a warning and goes on
        raise NotAvailable(f"Horovod is installed without its extension for torch: {BUILD_IT}")
    if device.collectives == "nccl" and not hvd.nccl_built():
        raise NotAvailable(f"Horovod was built without NCCL: {BUILD_IT}, where torch is one for CUDA and nvcc is there")
    return hvd


def join(job: Job) -> None:
    """Start Horovod on this rank and wait until all have."""
    import horovod.torch as hvd
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
    from horovod.runner.http.http_server import RendezvousServer

    from frameworks.torch.torch_setup import COLLECTIVE_TIMEOUT, meet, wait_for_all

    is_first = job.rank == 0
    store = meet(job)
    wait_for_all(store, job)
    address = os.environ["MASTER_ADDR"]
    store.set(f"place/{job.rank}", json.dumps([host_name(), job.local_rank]))
    places = [json.loads(store.get(f"place/{rank}")) for rank in range(job.world_size)]
    slots = get_host_assignments([HostInfo(name, ranks) for name, ranks in nodes(places)], job.world_size)
    server = RendezvousServer()
    if is_first:
        port = server.start()
        server.init(slots)
        store.set("port", str(port))
    os.environ |= variables(slots[job.rank], address, int(store.get("port")), COLLECTIVE_TIMEOUT.seconds)
    hvd.init()
    hvd.barrier()  # nobody looks for the others any more
    if is_first:
        server.stop()


def nodes(places: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Name and number of ranks of every node, from each rank's host name and local rank.

    A node's ranks are consecutive. Its first rank makes its name unique: one machine may stand for several nodes.
    """
    firsts = [rank for rank, (_, local_rank) in enumerate(places) if local_rank == 0]
    ends = [*firsts[1:], len(places)]
    return [(f"{places[first][0]}-{first}", end - first) for first, end in zip(firsts, ends, strict=True)]


def variables(slot: Any, address: str, port: int, timeout_s: int) -> dict[str, str]:
    """What horovodrun would tell a process: its place (a SlotInfo of Horovod's) and where the rendezvous server is."""
    found = {
        "HOROVOD_HOSTNAME": slot.hostname,
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(timeout_s),  # by default 30: a large model's first batch takes longer
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    if interface := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        found["HOROVOD_GLOO_IFACE"] = interface
    return found
