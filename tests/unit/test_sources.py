"""What the code digests of a record watch: what can change a measurement, not words and not what the planner asks."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from factories import make_cell, make_record
from planning.adaptors import adaptor_names
from planning.plan import PlannedCell
from records.code_digests import SCRIPTS, accepted_digests, code_digests, differs, measuring_files
from records.reader import read_outcome

ADAPTOR = "frameworks/torch_ddp.py"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The project's scripts, to be edited."""
    return shutil.copytree(SCRIPTS, tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new, 1))


def is_changed(recorded: dict[str, str], scripts: Path) -> bool:
    return differs(recorded, accepted_digests("torch_ddp", scripts))


@pytest.mark.parametrize(
    "name",
    [ADAPTOR, "workloads/rank.py", "launcher/shared_settings.py", "workloads/training/loop.py",
     "workloads/training/batches.py", "models/weights.py", "contracts/adaptor.py",
     "frameworks/torch/torch_setup.py", "frameworks/torch/torch_engine.py", "workloads/memory.py"],
)  # fmt: skip
def test_an_edit_of_what_measures_is_seen(scripts: Path, name: str) -> None:
    before = code_digests("torch_ddp", scripts)
    with (scripts / name).open("a") as file:
        file.write("\nMORE = 1\n")
    assert is_changed(before, scripts)


@pytest.mark.parametrize(
    "name", ["planning/memory_estimate.py", "contracts/storage.py", "contracts/errors.py", "planning/checks.py",
             "contracts/cell.py", "metrics/timing.py", "launch.py", "workloads/rendezvous.py",
             "workloads/process_facts.py", "workloads/thread_limits.py", "contracts/cgroups.py", "contracts/atomic.py"]
)  # fmt: skip
def test_an_edit_of_the_estimate_or_of_words_is_not(scripts: Path, name: str) -> None:
    before = code_digests("torch_ddp", scripts)
    with (scripts / name).open("a") as file:
        file.write("\nMORE = 1\n")
    assert not is_changed(before, scripts)


def test_what_only_the_planner_asks_of_an_adaptor_is_not_watched_and_the_rest_of_it_is(scripts: Path) -> None:
    adaptor = scripts / ADAPTOR
    before = code_digests("torch_ddp", scripts)
    text = adaptor.read_text()
    begin = text.index("def stored_state")
    end = text.index("\n\n\n", begin)
    other = "def stored_state(cell):\n    return 'another answer)'\n"
    adaptor.write_text(text[:begin] + other + text[end:] + '\n# A comment, "quoted".\n')
    edit(adaptor, '"""', '"""Other words: ')
    assert adaptor.read_text() != text
    assert not is_changed(before, scripts)
    edit(adaptor, "version=1", "version=2")
    assert is_changed(before, scripts)


@pytest.mark.parametrize("name", sorted(adaptor_names()))
def test_another_name_in_tables_and_figures_marks_no_record(scripts: Path, name: str) -> None:
    before = code_digests(name, scripts)
    path = scripts / "frameworks" / f"{name}.py"
    text = path.read_text()
    begin = text.index("def shown_as")
    end = text.index("\n\n\n", begin)
    for other in ("", 'def shown_as():\n    return ShownAs("Another name", style=77)\n'):
        path.write_text(text[:begin] + other + text[end:])
        assert not differs(before, accepted_digests(name, scripts))
    (scripts / "contracts" / "shown_as.py").write_text("class ShownAs: ...\n")
    assert not differs(before, accepted_digests(name, scripts))


def test_a_hash_in_a_string_is_no_comment_and_letters_beyond_ascii_count_as_one(scripts: Path) -> None:
    adaptor = scripts / ADAPTOR
    with adaptor.open("a") as file:
        file.write('\nWORDS = "é # one"; MORE = 1  # é\n')
    before = code_digests("torch_ddp", scripts)
    edit(adaptor, "  # é", "")
    assert not is_changed(before, scripts)
    edit(adaptor, "# one", "# two")
    assert is_changed(before, scripts)


def test_a_record_of_before_counts_by_the_digest_of_whole_files(scripts: Path) -> None:
    """At first records held digests of whole files, those of the planner among them, and none of train.py."""
    former = ("contracts/cell.py", "contracts/storage.py", *measuring_files("torch_ddp", scripts))
    recorded = {f"scripts/{name}": hashlib.sha256((scripts / name).read_bytes()).hexdigest() for name in former}
    for name in ("scripts/workloads/rank.py", "scripts/launcher/shared_settings.py"):
        del recorded[name]
    for name in ("workloads/rank.py", "contracts/storage.py", "contracts/cell.py"):
        with (scripts / name).open("a") as file:
            file.write("\nMORE = 1\n")
    assert not is_changed(recorded, scripts)
    with (scripts / ADAPTOR).open("a") as file:
        file.write("\nMORE = 1\n")
    assert is_changed(recorded, scripts)


def test_a_record_whose_adaptor_is_gone_is_of_other_code(scripts: Path, tmp_path: Path) -> None:
    cell = make_cell()
    record = {**make_record(cell), "code": code_digests("torch_ddp", scripts)}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    planned = PlannedCell("main", cell, 1)
    assert read_outcome(planned, path, "local", scripts).code_changed is False
    # Another folder, since what was read of one is kept.
    elsewhere = shutil.copytree(scripts, tmp_path / "elsewhere")
    (elsewhere / ADAPTOR).unlink()
    assert read_outcome(planned, path, "local", elsewhere).code_changed is True
