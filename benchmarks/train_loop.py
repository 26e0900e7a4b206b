"""What the launcher, the contract and the loop cost, and what their settings gain. Prints a Markdown table.

    python benchmarks/train_loop.py
    python benchmarks/train_loop.py --repeats 1 --precision fp32     # short
    python benchmarks/train_loop.py --repeats 1 --model tiny         # whether it works, in seconds

Three ways to train the same model on the same batches with one process, taking turns:

- `project`: a cell of torch_plain through scripts/launch.py and scripts/train.py;
- `bare`: a loop of ten lines of torch, with the launcher's thread and allocator settings;
- `default`: the same ten lines with whatever threads, allocator and AdamW implementation torch takes by itself.

A time is the mean of the last 10 of 11 batches. A ratio is the median of the ratios within each turn, so that what
else the machine does meets all three alike. The share of the matmul peak counts no recomputation (there is none) and
takes the peak that the cell measured itself, in its own process and type.

Goals: `project` within 2 % of `bare`, and in fp32 at least 1.25 times as fast as `default`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

from plausible import plausible  # noqa: E402

from contracts.cell import Layout, canonical_json  # noqa: E402
from contracts.cores import available_cores  # noqa: E402
from corpus.verify import TokensInfo  # noqa: E402
from frameworks.torch_plain import FRAMEWORK  # noqa: E402
from launcher.host_lock import host_lock  # noqa: E402
from launcher.shared_settings import shared_settings, threads_per_process  # noqa: E402
from models.gpt import Gpt  # noqa: E402
from planning.adaptors import environment_identity  # noqa: E402
from workloads.training.batches import BatchReader  # noqa: E402
from workloads.training.loop import LOOP_VERSION, NUM_BATCHES, NUM_WARMUP_BATCHES  # noqa: E402
from workloads.training.training_cell import TrainingCell, cell_from_identity  # noqa: E402

# The shape of the feasibility measurements: large enough that a batch takes a second on two cores.
MODELS = {
    "benchmark": Gpt("benchmark", num_layers=4, hidden_size=512, num_heads=8, seq_length=256, vocab_size=50304),
    "tiny": Gpt("tiny", num_layers=1, hidden_size=32, num_heads=2, seq_length=16, vocab_size=50304),
}
GLOBAL_BATCH_SIZE = 4
NUM_TOKENS = 100_000


@dataclass(frozen=True)
class Turn:
    """Mean seconds a batch of each way within one turn, and the matmul rate the project's cell measured."""

    project_s: float
    bare_s: float
    default_s: float
    peak_flops_per_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--model", choices=tuple(MODELS), default="benchmark", help="tiny tells nothing of speed")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)  # it starts itself: identity.json is there
    parser.add_argument("--default", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        print(json.dumps(train_bare(arguments.bare, fused=None if arguments.default else True)))
        return
    shares = "share of matmul peak: project | bare | default"
    print(f"| precision | project, s | project / bare | default / project | {shares} |")
    print("|---|---|---|---|---|---|---|")
    for precision in arguments.precision:
        cell = make_cell(precision, MODELS[arguments.model])
        with tempfile.TemporaryDirectory() as folder:
            print(table_row(cell, take_turns(cell, Path(folder), arguments.repeats)), flush=True)


def make_cell(precision: str, model: Gpt) -> TrainingCell:
    """One process of plain torch, whose batch is one micro-batch."""
    return TrainingCell(
        framework="torch_plain",
        adaptor_version=FRAMEWORK.version,
        loop_version=LOOP_VERSION,
        environment=environment_identity(FRAMEWORK.environment, ROOT),
        model=model,
        num_gpus=1,
        layout=Layout(data_parallel=1, micro_batch_size=GLOBAL_BATCH_SIZE),
        global_batch_size=GLOBAL_BATCH_SIZE,
        precision=precision,
        activation_checkpointing="none",
        corpus={"source": "random tokens", "revision": "1", "tokenizer": "none"},
        seed=1234,
        learning_rate=1e-4,
        adam_epsilon=1e-8,
        device="cpu",
        gpus_per_node=1,
    )


def take_turns(cell: TrainingCell, folder: Path, repeats: int) -> list[Turn]:
    """Measure the three ways, one after another, `repeats` times."""
    write_tokens(folder / "tokens.json", cell.model.vocab_size)
    (folder / "identity.json").write_text(json.dumps(cell.identity()))
    turns = []
    for repeat in range(1, repeats + 1):
        record = measure_project(cell, folder, repeat)
        rank = record["ranks"][0]
        stamps = zip(rank["batch_start_s"], rank["batch_end_s"], strict=True)
        project = timed_mean([end - start for start, end in stamps])
        settings = shared_settings(threads_per_process(available_cores(), 1), {})
        bare = timed_mean(measure_bare(folder, settings))
        default = timed_mean(measure_bare(folder, {}, "--default"))
        peak = 2 * rank["matmul_size"] ** 3 / min(rank["matmul_seconds"])
        turns.append(Turn(project, bare, default, peak))
        print(f"turn {repeat}: {turns[-1]}", file=sys.stderr, flush=True)
    return turns


def measure_project(cell: TrainingCell, folder: Path, repeat: int) -> dict:
    """The record of the cell, trained through the launcher; it takes the host's lock itself."""
    record = folder / f"repeat{repeat}" / "record.json"
    record.parent.mkdir()
    command = [sys.executable, SCRIPTS / "launch.py", "--system", "local", "--cell", canonical_json(cell.identity())]
    command += ["--model-name", cell.model.name, "--repeat", str(repeat), "--tokens", folder / "tokens.json"]
    command += ["--record", record, "--log", record.parent / "log.txt", "--time-limit-s", "600"]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads(record.read_text())


def measure_bare(folder: Path, settings: dict[str, str], *arguments: str) -> list[float]:
    """Seconds of each batch of the bare loop, in a process of its own under `settings`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "OMP_", "MKL_"))}
    with host_lock(lambda holder: print(holder, file=sys.stderr), lambda: True):
        command = [sys.executable, str(Path(__file__).resolve()), "--bare", str(folder), *arguments]
        done = subprocess.run(command, env=inherited | settings, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def train_bare(folder: Path, fused: bool | None) -> list[float]:
    """Seconds of each batch: torch and nothing else around the project's model and batches."""
    import torch
    import torch.nn.functional as F

    from frameworks.torch.decoder import GPT
    from models.weights import initial_weight

    cell = cell_from_identity(json.loads((folder / "identity.json").read_text()))
    half = torch.bfloat16 if cell.precision == "bf16" else None
    model = GPT(cell.model, autocast_dtype=half)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(initial_weight(cell.model, cell.seed, name)))
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=cell.learning_rate,
        betas=(0.9, 0.95),
        eps=cell.adam_epsilon,
        weight_decay=0.0,
        fused=fused,
    )
    tokens = np.fromfile(folder / "tokens.bin", dtype=np.uint16)
    reader = BatchReader(tokens, cell.model.seq_length, cell.model.vocab_size, cell.global_batch_size)
    seconds = []
    for step in range(NUM_BATCHES):
        batch = torch.from_numpy(reader.read(step))
        started = time.perf_counter()
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten()).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return seconds


def write_tokens(path: Path, vocab_size: int) -> None:
    """Random tokens under `path`, as the tokenizer would leave them: what they are does not change the time."""
    tokens = np.random.default_rng(1).integers(0, vocab_size, NUM_TOKENS, dtype=np.uint16)
    tokens.tofile(path.with_suffix(".bin"))
    digest = hashlib.sha256(tokens.tobytes()).hexdigest()
    info = TokensInfo("random tokens", "1", "train", "none", "", 0, NUM_TOKENS, digest, "uint16", "")
    path.write_text(json.dumps(asdict(info)))


def timed_mean(seconds: list[float]) -> float:
    """The mean without the warm-up batch."""
    assert len(seconds) == NUM_BATCHES, f"{len(seconds)} batches were timed"
    return plausible("the mean time of a batch", statistics.mean(seconds[NUM_WARMUP_BATCHES:]))


def training_flops(model: Gpt) -> float:
    """Floating-point operations of one batch: 6 per weight and token in products, and attention's two products."""
    b, s, layers, h, v = GLOBAL_BATCH_SIZE, model.seq_length, model.num_layers, model.hidden_size, model.vocab_size
    return 72 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))


def table_row(cell: TrainingCell, turns: list[Turn]) -> str:
    """One line of the table: medians over the turns. Stops where a share of the peak is above 1 or a time is none."""

    def median(values: list[float]) -> float:
        return statistics.median(values)

    flops = training_flops(cell.model)
    of_ways = ([t.project_s for t in turns], [t.bare_s for t in turns], [t.default_s for t in turns])
    shares = [
        plausible("a share of the measured matmul peak", median(of_way), at_most=1)
        for of_way in (
            [flops / seconds / turn.peak_flops_per_s for turn, seconds in zip(turns, times, strict=True)]
            for times in of_ways
        )
    ]
    return (
        f"| {cell.precision} | {median([t.project_s for t in turns]):.3f} "
        f"| {median([t.project_s / t.bare_s for t in turns]):.3f} "
        f"| {median([t.default_s / t.project_s for t in turns]):.2f} | "
        + " | ".join(f"{share:.2f}" for share in shares)
        + " |"
    )


if __name__ == "__main__":
    main()
