"""What an adaptor in `frameworks/` declares and provides; the loop, the launcher and the planner rely on nothing else.

An adaptor is one module, importable without its framework's packages (the planner reads its declaration under the
workflow's Python), with three names:

    FRAMEWORK: Framework                                what it is and what it can do
    unsupported_reason(cell: Cell) -> str | None        pure check; None when the layout can run
    create_engine(job: Job) -> Engine                   imports the framework and builds model, optimizer, groups

and, where plain torch's is not its way, a fourth:

    stored_state(cell: Cell) -> StateStorage            what of the model's state each GPU keeps (contracts/storage.py)

and, for readers of tables and figures, a fifth:

    shown_as() -> ShownAs                               its name there, and its colour (contracts/shown_as.py)

That one is a function and no field of `Framework`, since records keep digests of the code that measured them: functions
for the planner are left out of these (records/code_digests.py), so that another name marks nobody's records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from contracts.cell import Cell

if TYPE_CHECKING:
    import numpy as np

# What a framework may report of its own speed: sequences per second over all devices; 1e12 FLOP/s per device.
REPORTED = ("samples_per_s", "tflops_per_gpu")


class NotAvailable(Exception):
    """Raised by `create_engine` when a package or server the framework needs is not there (status `not_available`)."""


@dataclass(frozen=True)
class Framework:
    """An adaptor's declaration.

    version: bumped by hand when what is measured changes; part of every cell's identity.
    environment: the packages come from `envs/<environment>.txt`.
    parallelism: the degrees above 1 it can use, of "data", "tensor", "pipeline".
    options: layout options only this framework knows, name -> allowed values, the first being the default.
    packages: distributions whose versions go into the record.
    architectures: the files in models/ whose models it trains.
    uneven_stages: its pipeline stages may hold different numbers of layers (`stage_layers` of a layout).
    untraced_communication: its communication is invisible to a torch profiler.
    mpi: its processes are started under MPI (mpiexec on one machine, srun in a Slurm job).
    """

    version: int
    environment: str
    parallelism: frozenset[str]
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset({"gpt"})
    uneven_stages: bool = False
    untraced_communication: bool = False
    mpi: bool = False

    def option(self, cell: Any, name: str) -> Any:
        """Return a layout option's value in a training cell, which carries only those that are not the default."""
        return cell.layout.options.get(name, self.options[name][0])


@dataclass(frozen=True)
class Job:
    """One rank's view of the cell it runs; where to meet the others is in the environment (workloads/rendezvous.py)."""

    cell: Cell
    rank: int
    world_size: int
    local_rank: int
    memory_limit_gib: float | None = (
        None  # of device memory on a GPU; on a CPU the process is limited before it gets here
    )


class Engine(Protocol):
    """One rank of a framework, ready to train. It holds no clock and no loop.

    It may have an attribute `num_threads`, the threads that it computes one operator with; where it has none, what
    OMP_NUM_THREADS says is taken for it.
    """

    data_rank: int  # which share of the global batch this rank reads
    data_size: int  # into how many shares the global batch is cut
    device_name: str  # as the driver names it; on a CPU, the processor's model name
    initial_weights: str  # "shared": models/weights.py; "native": drawn by the framework itself
    settings: Mapping[str, Any]  # what the engine chose beyond the cell (matmul precision, loss scale), for the record

    def load(self, tokens: np.ndarray) -> Any:
        """Take this rank's share, int64 [sequences, seq_length + 1], to the device; counted as input time."""

    def step(self, batch: Any) -> Any:
        """One optimizer step over the share; returns a handle on the share's mean loss, without waiting for it."""

    def wait(self) -> None:
        """Return when everything asked of the device is done."""

    def read_loss(self, loss: Any) -> float | None:
        """The share's mean loss in nats per token; None on a rank that does not hold it."""

    def reported_by_framework(self) -> Mapping[str, float]:
        """After the last batch: the speed that the framework itself computes and prints, over whatever window it chose,
        by a name of REPORTED. Empty where it computes none."""

    def barrier(self) -> None:
        """Return when every rank has come here."""

    def reset_peak_memory(self) -> None: ...

    def peak_memory_bytes(self) -> int | None:
        """The most memory held on the device (on a CPU: resident in this process) since the reset; None if unknown."""

    def matmul_seconds(self, size: int, repeats: int) -> list[float]:
        """Seconds each of `repeats` products of two size x size matrices took, in the cell's dtype (CPU only)."""

    def close(self) -> None: ...
