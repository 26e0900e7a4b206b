"""Test double: `nothing` under MPI, its ranks in an all-reduce each batch; each takes a second and a half."""

import time

from contracts.adaptor import Framework
from frameworks import nothing

FRAMEWORK = Framework(
    version=1, environment="axonn_paper", parallelism=frozenset({"data"}), packages=("mpi4py",), mpi=True
)
unsupported_reason = nothing.unsupported_reason


def create_engine(job):
    from mpi4py import MPI

    assert (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) == (job.rank, job.world_size)
    return Engine(job, MPI.COMM_WORLD)


class Engine(nothing.Engine):
    def __init__(self, job, communicator):
        super().__init__(job)
        self._communicator = communicator

    def step(self, batch):
        time.sleep(1.5)
        return float(self._communicator.allreduce(batch.size))
