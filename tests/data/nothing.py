"""Test double: a framework that computes nothing and needs NumPy alone. It notes each start in starts.txt."""

from pathlib import Path

from contracts.adaptor import Framework

FRAMEWORK = Framework(version=1, environment="nothing", parallelism=frozenset({"data"}), packages=("numpy",))


def unsupported_reason(cell):
    return None


def create_engine(job):
    with Path("starts.txt").open("a") as file:
        file.write(f"{job.cell.cell_id}\n")
    return Engine(job)


class Engine:
    device_name = "none"
    initial_weights = "native"

    def __init__(self, job):
        self.data_rank, self.data_size = job.rank, job.world_size
        self.settings = {}

    def load(self, tokens):
        return tokens

    def step(self, batch):
        return float(batch.size)

    def wait(self): ...

    def reported_by_framework(self):
        return {}

    def barrier(self): ...

    def close(self): ...

    def reset_peak_memory(self): ...

    def peak_memory_bytes(self):
        return None

    def read_loss(self, loss):
        return loss

    def matmul_seconds(self, size, repeats):
        return [1.0] * repeats
