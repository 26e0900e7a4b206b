"""Nothing of a config file reaches a shell as anything but one word."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.errors import ConfigError
from factories import make_cell
from planning.job_resources import cell_resources, unsafe_folder
from settings.config import check_config
from settings.systems import SlurmSite, system_from_config

ROOT = Path(__file__).resolve().parents[2]
UNSAFE = ("a b", "a;b", "$(touch x)", "`x`", "a'b", 'a"b', "a&b", "a|b", "a>b", "n[1-3]", "*", "~", "a\\b")


@pytest.mark.parametrize("value", UNSAFE)
def test_further_options_of_sbatch_stay_one_word_each(value: str) -> None:
    site = replace(SlurmSite(), reservation=value, gpu_request="gpus_per_node", gpu_type=value, extra=(f"--x={value}",))
    asked = cell_resources(site, make_cell(), 600)["slurm_extra"]
    words = [
        "--ntasks-per-node=1",
        f"--gpus-per-node={value}:1",
        "--exclusive",
        f"--reservation={value}",
        f"--x={value}",
    ]
    assert shlex.split(asked) == words


@pytest.mark.parametrize("key", ["partition", "account", "qos", "reservation", "constraint", "gpu_type"])
@pytest.mark.parametrize("value", ["", "a b", "a\tb"])
def test_a_name_with_a_space_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^system\.yaml: slurm\.{key}: "):
        check_config({"device": "cpu", "slurm": {key: value}}, "system", ROOT, "system.yaml")


def test_constraints_of_several_features_are_taken() -> None:
    config = check_config(
        {"device": "cpu", "slurm": {"constraint": "a100&nvlink|[x*2]"}}, "system", ROOT, "system.yaml"
    )
    assert config["slurm"]["constraint"] == "a100&nvlink|[x*2]"


@pytest.mark.parametrize("value", [*UNSAFE, "ours-n", "ours-t", "ours-A", "ours-p"])
def test_the_slurm_plugin_takes_what_we_ask_for(value: str) -> None:
    """It looks for options of its own anywhere in the text, and for a form of gres."""
    validation = pytest.importorskip("snakemake_executor_plugin_slurm.validation")
    site = replace(SlurmSite(), reservation=value, extra=("--x=y",))
    asked = cell_resources(site, make_cell(), 600)["slurm_extra"]
    validation.validate_slurm_extra(SimpleNamespace(resources=SimpleNamespace(slurm_extra=asked)))
    assert f"--reservation={value}" in shlex.split(asked)


@pytest.mark.parametrize(
    ("slurm", "expected"),
    [
        ({"reservation": "My-Job"}, "slurm.reservation: 'My-Job' holds `-J`"),
        ({"extra": ["--exclude=n-J1"]}, "slurm.extra: '--exclude=n-J1' holds `-J`"),
        ({"gpu_type": "a100-40g"}, "slurm.gpu_type: 'a100-40g' has a `-`"),
    ],
)
def test_what_the_slurm_plugin_would_refuse_is_refused_while_reading(slurm: dict[str, Any], expected: str) -> None:
    config = check_config({"device": "cpu", "gpus_per_node": 2, "slurm": slurm}, "system", ROOT, "system.yaml")
    with pytest.raises(ValueError, match=re.escape(expected)):
        system_from_config("here", config)


def test_a_type_with_a_hyphen_can_be_asked_for_otherwise() -> None:
    slurm = {"gpu_type": "a100-40g", "gpu_request": "gpus_per_node"}
    config = check_config({"device": "cpu", "gpus_per_node": 2, "slurm": slurm}, "system", ROOT, "system.yaml")
    assert system_from_config("here", config).slurm == replace(
        SlurmSite(), gpu_type="a100-40g", gpu_request="gpus_per_node"
    )


@pytest.mark.parametrize("name", ["50%", "a\\b", "a\nb"])
def test_a_folder_with_a_sign_of_slurms_is_refused(name: str) -> None:
    assert "rename it" in unsafe_folder(Path("/data") / name)


@pytest.mark.parametrize("name", ["plain", "with space", "it's", "a;b", "ä", "a$b", "a`b", 'a"b'])
def test_other_folders_are_fine(name: str) -> None:
    assert unsafe_folder(Path("/data") / name) == ""


@pytest.mark.parametrize("path", sorted((ROOT / "workflow" / "rules").glob("*.smk")), ids=lambda path: path.name)
def test_every_value_in_a_rule_s_command_is_quoted(path: Path) -> None:
    """Numbers aside: a wildcard, a parameter, a path or a log may hold what a shell acts on."""
    text = path.read_text(encoding="utf-8")
    placed = re.findall(r"\{((?:wildcards|params|input|output|log)(?:\.\w+)?)(:q)?\}", "".join(shell_commands(text)))
    unquoted = [name for name, quoted in placed if not quoted and name != "wildcards.repeat"]
    assert not unquoted


def shell_commands(text: str) -> list[str]:
    """Return the lines of every `shell:` of a file of rules."""
    commands: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() == "shell:":
            inside = True
        elif inside and line.startswith("        "):
            commands.append(line)
        else:
            inside = False
    return commands


def test_there_are_commands_to_look_at() -> None:
    text = (ROOT / "workflow" / "rules" / "train.smk").read_text(encoding="utf-8")
    assert any("{params.cell:q}" in line for line in shell_commands(text))
