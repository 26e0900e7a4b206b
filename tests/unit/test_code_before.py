"""Records that were measured before the code moved to other files: they count as measured by today's code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from records.code_digests import CODE_BEFORE, SCRIPTS, accepted_digests, differs, state_digest

# What records of every adaptor held as `code` at the commit before the move.
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "code_before" / "records.json").read_text())


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The project's scripts, to be edited, with the code of before noted as measuring like them."""
    scripts = shutil.copytree(SCRIPTS, tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    before = json.loads((scripts / CODE_BEFORE).read_text())
    before["measures_like"] = {name: state_digest(name, scripts) for name in RECORDED}
    (scripts / CODE_BEFORE).write_text(json.dumps(before))
    return scripts


def test_todays_code_measures_like_that_of_before() -> None:
    """Whoever changes what is measured deletes this test, or notes again in CODE_BEFORE that it measures the same."""
    assert {name for name in RECORDED if differs(RECORDED[name], accepted_digests(name))} == set()


@pytest.mark.parametrize("name", ["frameworks/torch_ddp.py", "workloads/training/loop.py", "models/weights.py"])
def test_code_that_has_changed_since_the_move_is_seen_in_records_of_before(scripts: Path, name: str) -> None:
    assert not differs(RECORDED["torch_ddp"], accepted_digests("torch_ddp", scripts))
    with (scripts / name).open("a") as file:
        file.write("\nMORE = 1\n")
    assert differs(RECORDED["torch_ddp"], accepted_digests("torch_ddp", scripts))


def test_a_change_of_one_adaptor_is_none_of_another(scripts: Path) -> None:
    with (scripts / "frameworks/torch_ddp.py").open("a") as file:
        file.write("\nMORE = 1\n")
    assert not differs(RECORDED["torch_fsdp"], accepted_digests("torch_fsdp", scripts))


def test_other_code_of_before_is_not_taken_for_it(scripts: Path) -> None:
    """A record of an edited checkout was measured by other code then, and is so now."""
    path = next(path for path in RECORDED["torch_ddp"] if path.endswith("/loop.py"))
    edited = {**RECORDED["torch_ddp"], path: "0" * 64}
    assert differs(edited, accepted_digests("torch_ddp", scripts))
