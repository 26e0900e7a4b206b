"""How long 10,000 records take to become tables: reading, rows, measurements.csv and three tables, each in seconds.

    .venv/bin/python benchmarks/records_to_tables.py [--records 10000] [--limit 20]

The records are made up in a temporary folder: 5 frameworks on 2, 4 and 8 processes, strong scaling. Making them is not
timed. Exits with 1 where everything together takes longer than the limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "unit")]

from plausible import plausible  # noqa: E402

import factories  # noqa: E402
from metrics.columns import write_measurements  # noqa: E402
from metrics.rows import measurement_rows  # noqa: E402
from papers import find_table  # noqa: E402
from planning.plan import Study, record_path  # noqa: E402
from records.reader import read_outcomes  # noqa: E402
from reporting.table_files import write_table  # noqa: E402

FRAMEWORKS = ("one", "two", "three", "four", "five")
NUM_GPUS = (2, 4, 8)
REPEATS = 4


def made_up_study(num_records: int) -> Study:
    """Cells enough for the records: as many models as it takes, in comparisons of ten models each."""
    per_model = len(FRAMEWORKS) * len(NUM_GPUS) * REPEATS
    comparisons = []
    planned: list = []
    for index in range(-(-num_records // per_model)):
        model = factories.Gpt(f"model{index}", 2, 64 + 2 * index, 2, 32, 512)
        cells = [factories.make_cell(f, n, model) for f in FRAMEWORKS for n in NUM_GPUS]
        planned += [factories.planned(cell, repeat) for cell in cells for repeat in range(1, REPEATS + 1)]
        if index % 10 == 9:
            comparisons.append(factories.make_comparison(planned, f"comparison{index}"))
            planned = []
    comparisons += [factories.make_comparison(planned, "last")] if planned else []
    kept, left = [], num_records
    for comparison in comparisons:
        kept.append(factories.make_comparison(comparison.cells[:left], comparison.name))
        left -= len(kept[-1].cells)
    return factories.make_study([c for c in kept if c.cells], name="benchmark")


def write_records(study: Study, results: Path) -> None:
    """One record a planned cell, where the workflow would have put it."""
    for index, planned in enumerate(study.planned):
        times = [1.0 / planned.cell.num_gpus + 0.001 * ((index + batch) % 7) for batch in range(10)]
        record = factories.make_record(planned.cell, planned.repeat, times, check=False)
        path = record_path(results, study.system.name, planned)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    start, busy = time.perf_counter(), time.process_time()
    yield
    seconds[what] = plausible(f"the time to {what}", time.perf_counter() - start)
    # Much less CPU time than time means that the machine was busy with something else, and the figure is no good.
    print(f"{what:24} {seconds[what]:7.2f} s ({time.process_time() - busy:.2f} s of CPU)", flush=True)


def measure(num_records: int, read: Callable = read_outcomes) -> dict[str, float]:
    """Seconds of each step, by name."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        study, results = made_up_study(num_records), Path(folder) / "results"
        write_records(study, results)
        with timed("read the records", seconds):
            outcomes = read(study, results)
        assert sum(outcome.record is not None for outcome in outcomes.values()) == num_records, (
            "not every record was read"
        )
        with timed("records to rows", seconds):
            frame = measurement_rows(study, outcomes, factories.HARDWARE)
        assert (frame["status"] == "ok").sum() == num_records, "not every record became a measurement"
        measurements = Path(folder) / "measurements.csv"
        with timed("write measurements.csv", seconds):
            write_measurements(frame, measurements)
        for table in ("strong_scaling", "hyperparameters"):
            with timed(f"table {table}", seconds):
                write_table(measurements, find_table("axonn", table), table, None, Path(folder) / "tables")
        with timed("table parity", seconds):
            write_table(measurements, find_table("parity", "parity"), "parity", None, Path(folder) / "tables")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds that all of it may take")
    args = parser.parse_args()
    total = sum(measure(args.records).values())
    print(f"{'all of it':24} {total:7.2f} s for {args.records} records (limit {args.limit:g} s)")
    return 0 if total <= args.limit else 1


if __name__ == "__main__":
    sys.exit(main())
