"""Configuration files after every kind of damage: one sentence that names the file, or a plan with possible numbers.

Every case is a pure function of its number, which is part of each failure's message: `one_case(number, folder)` shows
it alone. `./test` runs the first 1,000, `./test --long` further 10,000.
"""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from config_mutations import mutated_config
from contracts.cell import identity_hash
from contracts.errors import ConfigError
from planning.adaptors import load_adaptor
from planning.budget import budget
from planning.job_resources import cell_resources
from planning.plan import Study, index_cells
from planning.plan_lines import missing_lines, plan_lines
from planning.predictions import cell_estimate
from planning.studies import load_hardware, load_study
from settings.config import read_config
from studies import ROOT

CASES = 1_000
LONG_CASES = 10_000
MOST_SECONDS = 5.0  # of the processor for a case; the usual one takes hundredths of a second
COPIED = ("config", "envs", "reference", "workflow")
# What of a study's file decides no measurement.
FREE_KEYS = frozenset({"title", "paper", "tables", "figures", "reference", "time_limit_minutes", "repeats"})
CPU, GPU = "local", "example-summit-like"
NOWHERE = Path("no-results-here")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that planning reads, which a case damages and mends again."""
    folder = tmp_path_factory.mktemp("fuzz") / "project"
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    (folder / "corpora").symlink_to(ROOT / "corpora")
    # No question to a driver, and the same number of threads on every machine.
    system = folder / "config/systems/local.yaml"
    system.write_text("device: cpu\ncpu_processes: 4\nthreads_per_process: 1\n")
    return folder


@cache
def damaged_files(project: Path) -> tuple[Path, ...]:
    return tuple(sorted((project / "config").rglob("*.yaml")))


@pytest.mark.parametrize("block", range(10))
def test_a_damaged_config_is_one_sentence_or_a_possible_plan(project: Path, block: int) -> None:
    for number in range(block * CASES // 10, (block + 1) * CASES // 10):
        one_case(number, project)


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_ten_thousand_more(project: Path, block: int) -> None:
    for number in range(CASES + block * LONG_CASES // 10, CASES + (block + 1) * LONG_CASES // 10):
        one_case(number, project)


def one_case(number: int, project: Path) -> None:
    """Damage one file, plan what it belongs to, and put it back."""
    chance = random.Random(f"configs {number}")
    path = chance.choice(damaged_files(project))
    where = str(path.relative_to(project))
    told = f"case {number}, {where}"
    system = chance.choice((CPU, GPU))
    sound = path.read_text(encoding="utf-8")
    is_study = path.parent.name == "studies"
    before = sound_ids(project, path.stem, system) if is_study else frozenset()
    damaged = mutated_config(sound, chance)
    path.write_text(damaged, encoding="utf-8", errors="surrogatepass")
    began_s = time.process_time()
    try:
        for study in plans(path, system, chance, project):
            check_plan(study, project, told)
            if is_study and same_cells(sound, damaged):
                assert ids_of(study) == before, told
    except ConfigError as error:
        message = str(error)
        assert message.isprintable() and len(message) < 3_000, f"{told}: {message!r}"
        # What a file defines may be missed where another one names it.
        assert where in message or (not is_study and "config/" in message), f"{told}: {message}"
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
    finally:
        path.write_text(sound, encoding="utf-8")
    spent_s = time.process_time() - began_s
    assert spent_s < MOST_SECONDS, f"{told}: took {spent_s:.1f} s"


def plans(path: Path, system: str, chance: random.Random, project: Path) -> Iterator[Study]:
    """Yield the studies that a file is about."""
    if path.parent.name == "studies":
        yield load_study(path.stem, system, project)
    elif path.parent.name == "systems":
        yield load_study(chance.choice(("demo", "parity")), path.stem, project)
    elif path.name == "config.yaml":
        settings = read_config(path, "config", project)
        for name in settings["studies"][:2]:
            yield load_study(name, settings["system"], project)
    else:
        yield load_study(chance.choice(("demo", "axonn_strong_scaling")), GPU, project)


def check_plan(study: Study, project: Path, told: str) -> None:
    """Nothing in a plan is zero, negative or infinite, and all that a call prints of it can be printed."""
    assert study.planned, told
    assert study.title.isprintable(), told
    system = study.system
    possible = [system.gpus_per_node, system.max_gpus, system.startup_timeout_s]
    possible += [value for value in (system.memory_limit_gib, system.threads_per_process) if value is not None]
    cells = {planned.cell.cell_id: planned.cell for planned in study.planned}
    for cell in cells.values():
        possible += [cell.num_gpus, cell.num_nodes, cell.global_batch_size, cell.num_micro_batches, cell.learning_rate]
        possible += [cell.adam_epsilon, cell.gpus_per_node, cell.model.num_parameters, study.limit_minutes(cell)]
        assert cell.layout.num_gpus == cell.num_gpus, told
        assert (
            cell.num_micro_batches * cell.layout.data_parallel * cell.layout.micro_batch_size == cell.global_batch_size
        )
        assert identity_hash(cell.identity()) == cell.cell_id, told
    for values in index_cells([study]).values():
        possible.append(values["time_limit_s"])
        if system.slurm:
            asked = cell_resources(system.slurm, values["cell"], values["time_limit_s"])
            possible += [asked["nodes"], asked["runtime"], asked["threads"]]
    sample = next(iter(cells.values()))
    estimate = cell_estimate(load_adaptor(sample.framework), sample)
    if estimate is not None:
        possible.append(estimate.total_gib)
    hardware = load_hardware(project)
    cost = budget(study, NOWHERE, (), hardware)
    if cost.cells:
        shares = [share for size in cost.sizes for share in (size.fitting, size.unfit) if share.cells]
        possible += [cost.most_nodes, cost.minutes]
        possible += [share.gpu_hours for share in shares if share.gpu_hours is not None]
    assert all(is_possible(value) for value in possible), f"{told}: {possible}"
    lines = [cost.words(), *cost.lines(), *plan_lines(study), *_first(missing_lines(study, NOWHERE, hardware), 3)]
    assert all(line.isprintable() and "nan" not in line.split() for line in lines), f"{told}: {lines}"


def is_possible(value: Any) -> bool:
    return type(value) in (int, float) and value > 0 and value < 1e40 and math.isfinite(value)


def _first(lines: Iterator[str], number: int) -> list[str]:
    return [line for line, _ in zip(lines, range(number), strict=False)]


def same_cells(sound: str, damaged: str) -> bool:
    """Whether two texts of a study's file differ in nothing that decides a measurement."""
    before, after = yaml.safe_load(sound), yaml.safe_load(damaged)
    return all(before.get(key) == after.get(key) for key in (before.keys() | after.keys()) - FREE_KEYS)


def ids_of(study: Study) -> frozenset[str]:
    return frozenset(planned.cell.cell_id for planned in study.planned)


@cache
def sound_ids(project: Path, study: str, system: str) -> frozenset[str]:
    return ids_of(load_study(study, system, project))
