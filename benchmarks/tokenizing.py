"""What tokenizing costs here, against what else one could use. Prints Markdown tables, all rows measured in one run.

    python benchmarks/tokenizing.py
    python benchmarks/tokenizing.py --megabytes 10 --map-megabytes 5 --memory-megabytes 5 20 --repeats 1     # short

Speed: this project's tokenizing (the whole command, from a text file to a finished token file, starting up included)
with two processes, against `datasets.map(num_proc=2)` with the fast Hugging Face tokenizer, and against bare tiktoken
in two processes on chunks cut beforehand (its starting up is not counted). The ways take turns, and a ratio is the
median of the ratios within each turn, so that what else the machine does meets all of them alike; CPU seconds are
printed too, for a machine that is not idle. Memory: the peak of the sum over the parent and its workers.

Needs, beyond envs/workflow.txt: tokenizers==0.23.3. The text is made of the bundled corpus and, where it is there,
WikiText-2 from ../shared/data, their lines shuffled and repeated.
"""

import argparse
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from plausible import plausible  # noqa: E402

from corpus.cutting import cut_text  # noqa: E402
from corpus.gpt2 import load_encoding, read_vocabulary  # noqa: E402
from corpus.tokenizing import CHUNK_CHARS  # noqa: E402

NUM_PROCESSES = 2
BYTES_PER_MB = 1_000_000
SAMPLE_EVERY_S = 0.05


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one way took for a text of `megabytes`."""

    megabytes: int
    wall_s: float
    cpu_s: float

    @property
    def megabytes_per_s(self) -> float:
        """The rate by the clock."""
        return self.megabytes / self.wall_s


def main() -> None:
    """Measure and print."""
    args = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-tokenizing-") as name:
        folder = Path(name)
        text = make_text(folder / "speed.txt", args.megabytes)
        map_text = make_text(folder / "map.txt", args.map_megabytes)
        turns = []
        for _ in range(args.repeats):
            ours = measure_ours(text, args.megabytes, folder / "ours.bin")
            bare = measure_bare_tiktoken(text, args.megabytes)
            turns.append({"ours": ours, "bare tiktoken": bare})
            if args.map_megabytes:
                turns[-1]["datasets.map"] = measure_datasets_map(map_text, args.map_megabytes, folder)
        print_speed(turns)
        text.unlink()
        peaks_mb = {}
        for megabytes in args.memory_megabytes:
            text = make_text(folder / f"memory{megabytes}.txt", megabytes)
            peaks_mb[megabytes] = peak_memory_mb(text, folder / "memory.bin")
            text.unlink()
        print_memory(peaks_mb)


def print_speed(turns: list[dict[str, Cost]]) -> None:
    """Print each way's rate and this project's rate over it, both as the median of the turns."""
    goals = {"ours": "", "bare tiktoken": ">= 0.95", "datasets.map": ">= 6"}
    num_cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{NUM_PROCESSES} processes on {num_cores} cores, {len(turns)} turns, load average {load:.1f}\n")
    print("| way | text, MB | MB/s (lowest-highest) | CPU s per 100 MB | ours / this | goal |")
    print("|---|---|---|---|---|---|")
    for way in turns[0]:
        rates = [turn[way].megabytes_per_s for turn in turns]
        ratio = statistics.median(turn["ours"].megabytes_per_s / turn[way].megabytes_per_s for turn in turns)
        cpu_s = statistics.median(100 * turn[way].cpu_s / turn[way].megabytes for turn in turns)
        print(
            f"| {way} | {turns[0][way].megabytes} | {statistics.median(rates):.1f} ({min(rates):.1f}-{max(rates):.1f}) "
            f"| {cpu_s:.1f} | {ratio:.2f} | {goals[way]} |"
        )


def print_memory(peaks_mb: dict[int, float]) -> None:
    """Print the peaks and the ratio of each to the first."""
    print("\n| text, MB | peak memory of all processes, MB | ratio to the first | goal |\n|---|---|---|---|")
    first = next(iter(peaks_mb.values()), 0.0)
    for megabytes, peak in peaks_mb.items():
        print(f"| {megabytes} | {peak:.0f} | {peak / first:.2f} | flat |")


def make_text(path: Path, megabytes: int) -> Path:
    """Write about `megabytes` million bytes of real lines in random order."""
    sources = [ROOT / "corpora" / "bundled" / "train.txt"]
    sources += sorted((ROOT.parent / "shared" / "data" / "wikitext-2").glob("*.txt"))
    lines = [line for source in sources for line in source.read_bytes().splitlines(keepends=True)]
    generator = random.Random(0)
    written = 0
    with path.open("wb") as file:
        while written < megabytes * BYTES_PER_MB:
            generator.shuffle(lines)
            block = b"".join(lines)[: megabytes * BYTES_PER_MB - written]
            # A cut in the middle of a character would not be UTF-8.
            written += len(block)
            file.write(block.decode(errors="ignore").encode())
    return path


def command(text: Path, output: Path) -> list[str]:
    """Return this project's command line for a file."""
    script = str(ROOT / "scripts" / "tokenize_corpus.py")
    corpus = f'{{"path": "{text}"}}'
    return [sys.executable, script, "--corpus", corpus, "--output", str(output), "--processes", str(NUM_PROCESSES)]


def measure_ours(text: Path, megabytes: int, output: Path) -> Cost:
    """Return what this project's command takes."""
    with _measured(megabytes) as costs:
        subprocess.run(command(text, output), check=True, stderr=subprocess.DEVNULL)
    return costs[0]


def measure_bare_tiktoken(text: Path, megabytes: int) -> Cost:
    """Return what it takes from the moment that two started processes begin on their chunks until both are done."""
    chunks = list(cut_text([text.read_bytes().decode()], CHUNK_CHARS))
    context = multiprocessing.get_context("fork")  # the chunks are there without being sent
    barrier = context.Barrier(NUM_PROCESSES + 1)
    cpu_s = context.Array("d", NUM_PROCESSES)
    processes = [
        context.Process(target=_encode_all, args=(chunks[index::NUM_PROCESSES], barrier, cpu_s, index))
        for index in range(NUM_PROCESSES)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    started_s = time.perf_counter()
    for process in processes:
        process.join()
    return _cost(megabytes, time.perf_counter() - started_s, sum(cpu_s))


def _encode_all(chunks: list[str], barrier: Any, cpu_s: Any, index: int) -> None:
    encoding = load_encoding()
    barrier.wait()
    started_s = time.process_time()
    for chunk in chunks:
        encoding.encode_ordinary(chunk)
    cpu_s[index] = time.process_time() - started_s
    os._exit(0)


def measure_datasets_map(text: Path, megabytes: int, folder: Path) -> Cost:
    """Return what `datasets.map` takes over the text's lines with the fast tokenizer, the text already loaded."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import datasets
    from tokenizers import ByteLevelBPETokenizer

    datasets.disable_progress_bars()
    for name, content in read_vocabulary().items():
        (folder / name).write_bytes(content)
    tokenizer = ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    with text.open(encoding="utf-8", newline="") as file:
        dataset = datasets.Dataset.from_dict({"text": list(file)})

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [encoded.ids for encoded in tokenizer.encode_batch(rows["text"])]}

    cache = folder / f"map-{time.monotonic_ns()}.arrow"
    arguments = {"batched": True, "num_proc": NUM_PROCESSES, "remove_columns": ["text"], "cache_file_name": str(cache)}
    with _measured(megabytes) as costs:
        dataset.map(encode, **arguments)
    return costs[0]


def peak_memory_mb(text: Path, output: Path) -> float:
    """Return the highest sum over all processes of this project's command, in MB.

    Proportional set size where the kernel tells it (memory shared by several processes counts once), else resident.
    """
    process = subprocess.Popen(command(text, output), stderr=subprocess.DEVNULL)
    peak_bytes = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            family = itertools.chain([watched], watched.children(recursive=True))
            peak_bytes = max(peak_bytes, sum(_memory_bytes(family)))
            time.sleep(SAMPLE_EVERY_S)
    if process.wait():
        raise SystemExit(f"tokenizing {text} failed with exit code {process.returncode}")
    return plausible("the peak of memory", peak_bytes) / BYTES_PER_MB


def _memory_bytes(family: Iterator[psutil.Process]) -> Iterator[int]:
    for process in family:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_full_info()
            yield getattr(memory, "pss", 0) or memory.rss


@contextlib.contextmanager
def _measured(megabytes: int) -> Iterator[list[Cost]]:
    """Put into the list what the block took, by the clock and on all CPUs, children that ended in it included."""
    costs: list[Cost] = []
    started_s, cpu_started_s = time.perf_counter(), _cpu_s()
    yield costs
    costs.append(_cost(megabytes, time.perf_counter() - started_s, _cpu_s() - cpu_started_s))


def _cost(megabytes: int, wall_s: float, cpu_s: float) -> Cost:
    """Return what was measured, or stop where it cannot be: nobody spends more than all cores for all of the time."""
    cores = os.cpu_count() or 1
    return Cost(
        megabytes,
        plausible("the time of a turn", wall_s),
        plausible("the processor time of a turn", cpu_s, at_most=1.1 * cores * wall_s + 0.1),
    )


def _cpu_s() -> float:
    return sum(os.times()[:4])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200, help="size of the text for speed")
    parser.add_argument("--map-megabytes", type=int, default=30, help="the same for datasets.map; 0 leaves it out")
    parser.add_argument("--memory-megabytes", type=int, nargs="*", default=[20, 500], help="sizes of text for memory")
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    return parser


if __name__ == "__main__":
    main()
