"""What every torch adaptor needs before it builds a model: device, process group, meshes, number formats."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from contracts.adaptor import Job, NotAvailable
from workloads.process_facts import processor_name
from workloads.rendezvous import meeting_of_this_launch, open_port, place_of

# Long enough for a large model's first batch, short enough that a rank whose peer hangs ends its job.
COLLECTIVE_TIMEOUT = timedelta(minutes=10)
# In the ranks' store: the token of the launch whose store it is.
LAUNCH_KEY = "scaling_eval_launch"
_GLOO_GROUPS: list[dist.ProcessGroup] = []
HALF_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Runtime:
    """One rank's device and its place in the job. `grouped`: there is a process group."""

    device: torch.device
    rank: int
    world_size: int
    grouped: bool

    def mesh(self, **degrees: int) -> DeviceMesh:
        """The ranks as a grid with named axes, the last one varying fastest: neighbouring ranks, so the same node.

        Tensor parallelism (all-reduces inside every layer) therefore goes last and pipeline parallelism (one
        activation per micro-batch) first, as Megatron-LM and torchtitan order them too.
        """
        mesh = init_device_mesh(self.device.type, tuple(degrees.values()), mesh_dim_names=tuple(degrees))
        _outlive_models(self.device, mesh.get_all_groups())
        return mesh


def start(job: Job, *, process_group: bool = True) -> Runtime:
    """Claim this rank's device, seed the random state and join the process group (NCCL on CUDA, gloo on the CPU).

    The ranks meet as `meet` says. Raises NotAvailable when the cell wants a GPU and torch sees none, ValueError when
    there are fewer GPUs than ranks on this node.
    """
    device = claim_device(job)
    use_exact_fp32()
    torch.manual_seed(job.cell.seed)
    if process_group:
        store = meet(job)
        wait_for_all(store, job)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            # With the prefix that torch gives a store which it makes itself.
            store=dist.PrefixStore("default_pg", store),
            rank=job.rank,
            world_size=job.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        _outlive_models(device, [dist.group.WORLD])
    return Runtime(device, job.rank, job.world_size, process_group)


def meet(job: Job) -> dist.TCPStore:
    """Return the store at which the ranks of this launch meet; rank 0 serves it, at a port of its own.

    Raises RuntimeError when it turns out to be another launch's, or when another process came as this rank.
    """
    meeting = meeting_of_this_launch()
    if job.rank == 0:
        listener = open_port()
        place = place_of(listener, meeting.address)
        # Torch takes the open socket over and closes it with the store. Nobody is waited for here: who comes shows its
        # launch first, and the process group waits for its ranks itself.
        store = dist.TCPStore(
            place.address,
            place.port,
            job.world_size,
            is_master=True,
            timeout=COLLECTIVE_TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        store.set(LAUNCH_KEY, meeting.token)
        meeting.announce(place)
    else:
        place = meeting.find(meeting.timeout_s)
        store = dist.TCPStore(
            place.address,
            place.port,
            job.world_size,
            is_master=False,
            timeout=COLLECTIVE_TIMEOUT,
            wait_for_workers=False,
        )
        told = store.get(LAUNCH_KEY).decode()
        meeting.refuse_another_launch(told, f"at {place.address}:{place.port} rank {job.rank} met")
    if store.add(f"{LAUNCH_KEY}/rank/{job.rank}", 1) > 1:
        raise RuntimeError(f"two processes of this launch came to the others as rank {job.rank}")
    return store


def wait_for_all(store: dist.TCPStore, job: Job) -> None:
    """Wait until every rank has met the others, as long as the launch gives its ranks to start.

    On hundreds of nodes the first and the last rank may be more than COLLECTIVE_TIMEOUT apart, which is what a process
    group waits for its ranks.
    """
    everybody = f"{LAUNCH_KEY}/everybody"
    if store.add(f"{LAUNCH_KEY}/number", 1) == job.world_size:
        store.set(everybody, "is here")
    store.wait([everybody], timedelta(seconds=meeting_of_this_launch().timeout_s))


def _outlive_models(device: torch.device, groups: Iterable[dist.ProcessGroup]) -> None:
    """Keep gloo's groups until the process ends, so that no model is the last to hold one.

    DistributedDataParallel lets go of its group with Python's lock held, and the end of a group waits for threads that
    may need the lock to let go of their last tensors: rank and threads would wait for each other for ever.
    """
    if device.type == "cpu":
        _GLOO_GROUPS.extend(groups)


def claim_device(job: Job) -> torch.device:
    """The CPU, or the GPU of this local rank, made the current one and held to the job's memory limit.

    A scheduler may show each process its own GPU only; then that one is meant, whatever the local rank.
    """
    if not job.cell.device.is_accelerator:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise NotAvailable(f"the cell runs on {job.cell.device} and torch {torch.__version__} finds no CUDA device")
    visible = torch.cuda.device_count()
    index = 0 if visible == 1 else job.local_rank
    if index >= visible:
        raise ValueError(f"local rank {job.local_rank} has no GPU: this node shows {visible}")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    if job.memory_limit_gib is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job.memory_limit_gib * 2**30 / total), device)
    return device


def use_exact_fp32() -> None:
    """Make float32 products float32: no TF32 on CUDA, no bf16 passes on the CPU, whatever was switched on before."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def device_name(device: torch.device, cpu_information: Path = Path("/proc/cpuinfo")) -> str:
    """Return the GPU as its driver names it, or the processor's model."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name(cpu_information) or platform.processor() or platform.machine()


def half_type(precision: str) -> torch.dtype | None:
    """The half-precision type of "bf16" or "fp16"; None for "fp32"."""
    return HALF_PRECISION.get(precision)
