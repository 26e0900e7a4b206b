"""What is refused before anything trains: outputs that nothing fills, references, adaptors, open versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import frameworks
from contracts.errors import ConfigError
from papers import check_cells, check_outputs
from planning.adaptors import environment_identity, load_adaptor
from planning.studies import load_study
from reporting.reference import read_reference
from studies import expand, study_config
from workloads.training.training_cell import TrainingCell

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "reference" / "axonn_2021.csv"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("tables", "figures", "scalings", "expected"),
    [
        (["weak_scaling"], [], ["strong"], r"tables: weak_scaling shows .* weak_model or weak_batch, .* are strong;"),
        (
            ["strong_scaling"],
            [],
            ["weak_model", "none"],
            r"tables: strong_scaling shows .* strong, .* none, weak_model",
        ),
        ([], ["strong_scaling"], ["weak_batch"], r"figures: strong_scaling .*take the figure out"),
        ([], ["training_time"], ["none"], r"figures: training_time"),
        ([], ["percentage_of_peak"], ["none", "none"], r"figures: percentage_of_peak .* are none;"),
    ],
)
def test_outputs_that_no_comparison_fills(tables: list[str], figures: list[str], scalings: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        check_outputs("axonn", tables, figures, scalings)


def test_outputs_that_a_comparison_fills() -> None:
    check_outputs("axonn", ["weak_scaling", "strong_scaling"], ["strong_scaling"], ["strong", "weak_batch"])
    check_outputs("axonn", ["hyperparameters"], [], ["none"])
    check_outputs("axonn", [], ["training_time", "percentage_of_peak"], ["weak_model"])
    check_outputs("parity", ["parity"], [], ["none"])


def parity_cells(frameworks: dict[str, Any], **comparison: Any) -> list[TrainingCell]:
    """Of a study of the model small on 1 and 2 GPUs."""
    cross = {"models": ["small"], "num_gpus": [1, 2]}
    comparisons = {"main": {"scaling": "none", "cross": cross, **comparison}}
    return [one.cell for one in expand(study_config(frameworks=frameworks, comparisons=comparisons)).planned]


PLAIN = {"torch_plain": {"layouts": [{"num_gpus": [1]}]}}


@pytest.mark.parametrize(
    ("frameworks", "comparison", "expected"),
    [
        ({"torch_ddp": None}, {}, r"^frameworks: the table parity .* torch_plain on 1 GPU, .*; add torch_plain$"),
        (
            {**PLAIN, "torch_ddp": None},
            {"points": [{"model": "large", "num_gpus": 2}]},
            r"^comparisons: .* no such cell of large with a global batch of 8, as torch_ddp on 2 has it; add it",
        ),
        (
            {**PLAIN, "torch_ddp": None},
            {"points": [{"model": "small", "num_gpus": 2, "global_batch_size": 4}]},
            r"^comparisons: .* no such cell of small with a global batch of 4, as torch_ddp on 2",
        ),
    ],
    ids=["framework", "model", "batch"],
)
def test_parity_without_what_it_is_against(frameworks: Any, comparison: Any, expected: str) -> None:
    """All cells were measured, and the table had nothing in it."""
    with pytest.raises(ValueError, match=expected):
        check_cells("parity", parity_cells(frameworks, **comparison))


def test_parity_with_what_it_is_against() -> None:
    check_cells("parity", parity_cells({**PLAIN, "torch_ddp": None}))
    check_cells("axonn", parity_cells({"torch_ddp": None}))
    check_cells("parity", [one.cell for one in load_study("parity", "local", ROOT).planned])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (",note\n", "\n", r"r\.csv: cannot be read|no column note"),
        ("paper,framework", "paper,system", "no column framework"),
        (",axonn,axonn-12b", ",axon,axonn-12b", r"line 2: framework: 'axon' is not known \(did you mean 'axonn'"),
        ("megatron_lm;deepspeed", "megatron_lm;deepsped", "compared_with: 'deepsped' is not known .*'deepspeed'"),
        (
            "percentage_of_peak_throughput",
            "percentage_of_peek",
            "line 2: metric: .*did you mean 'percentage_of_peak_th",
        ),
        ("49.4,54.78", "49.4-54.78,54.78", r"value_min: '49.4-54.78' is no number; a range has its ends"),
        ("49.4,54.78", ",54.78", "value_min: '' is no number"),
        ("49.4,54.78", "nan,54.78", "value_min: 'nan' is not above zero and finite"),
        ("49.4,54.78", "49.4,1e999", "value_max: '1e999' is not above zero and finite"),
        ("49.4,54.78", "-49.4,54.78", "value_min: '-49.4' is not above zero"),
        ("49.4,54.78", "54.78,49.4", "value_min 54.78 is above value_max 49.4"),
        (",48,48,", ",48.5,49,", "num_gpus_min: '48.5' is no whole number"),
        (",half,full", ",halve,full", "precision: 'halve' is not known .*'half'"),
        (",half,full", ",half,all", "activation_checkpointing: 'all' is not known"),
        (",axonn-12b,", ",,", "line 2: models is empty"),
    ],
)
def test_a_reference_that_tables_could_not_use(old: str, new: str, expected: str, tmp_path: Path) -> None:
    text = REFERENCE.read_text()
    assert old in text
    (tmp_path / "r.csv").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=expected) as found:
        read_reference(tmp_path / "r.csv")
    assert "\n" not in str(found.value) and str(found.value).startswith(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"a,b\n1,2,3,4\n1\n", b'"'])
def test_a_reference_that_is_no_table(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"r\.csv"):
        read_reference(tmp_path / "r.csv")
    with pytest.raises(ValueError, match=r"gone\.csv: cannot be read"):
        read_reference(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parallelism": 'frozenset({"data", "tensors"})'}, r"parallelism 'tensors' is not known \(did you mean 'tens"),
        ({"parallelism": '"data"'}, r"parallelism 'data' is no set; write frozenset"),
        ({"options": '{"stage": ()}'}, "options: stage has .* no tuple of allowed values"),
        ({"options": '{"stage": (0, 1, 0)}'}, "options: stage has 0 twice"),
        ({"options": '{"stage": (1, True)}'}, "options: stage has True twice"),
        ({"options": '{"stage": "abc"}'}, "options: stage has 'abc' and no tuple"),
        ({"options": '{"stage": ([1],)}'}, r"options: stage: \[1\] is no text"),
        ({"options": '{"stage": (float("nan"),)}'}, "options: stage: nan is no text"),
        (
            {"options": '{"micro_batch_size": (1, 2)}'},
            "options: micro_batch_size is a key of every frame",
        ),
        ({"options": "{3: (1, 2)}"}, "options: 3 is no name"),
        ({"options": '("stage",)'}, "options .* is no mapping"),
        ({"version": "1.0"}, "version 1.0 is no whole number"),
        ({"version": "True"}, "version True is no whole number"),
        ({"version": "0"}, "version 0 is no whole number"),
        ({"environment": "None"}, "environment None is no name"),
        ({"environment": '"../torch"'}, "environment '../torch' is no name"),
        ({"packages": '"torch"'}, r"packages 'torch' is no tuple of names; write"),
        ({"mpi": '"no"'}, "mpi 'no' is neither True nor False"),
    ],
)
def test_an_adaptor_whose_declaration_is_wrong(
    changes: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks, "__path__", [*frameworks.__path__, str(tmp_path)])
    name = f"wrong_{abs(hash(tuple(changes.items())))}"
    values = {"version": "1", "environment": '"torch"', "parallelism": 'frozenset({"data"})', **changes}
    declared = ", ".join(f"{key}={value}" for key, value in values.items())
    (tmp_path / f"{name}.py").write_text(
        f"from contracts.adaptor import Framework\nFRAMEWORK = Framework({declared})\n"
        "def unsupported_reason(cell): ...\ndef create_engine(job): ...\n"
    )
    with pytest.raises(ConfigError, match=rf"scripts/frameworks/{name}\.py: {expected}"):
        load_adaptor(name)


def write_environment(root: Path, **files: str) -> None:
    (root / "envs").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "envs" / f"{name}.txt").write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "accelerate==1.2.3", "accelerate[x,y] == 1.2.3 ; python_version >= '3.11'", "accelerate===1.2.3+weird",
        "torch==2.13.0+cpu", "numpy==2.4.6  # why", "numpy==2.4.6 --hash=sha256:abc --hash=sha256:def",
        "numpy==2.4.6 \\\n    --hash=sha256:abc", "numpy>=2,==2.4.6", f"x @ git+https://example.org/x.git@{COMMIT}",
        f"x @ git+https://example.org/x.git@{COMMIT}#egg=x", f"x @ https://example.org/x.whl#sha256={'ab' * 32}",
        "--index-url https://example.org/simple", "-i https://example.org/simple", "--extra-index-url=https://e.org",
        "-f wheels", "--no-binary :all:", "--require-hashes", "", "# only words",
    ],
)  # fmt: skip
def test_lines_that_pin(line: str, tmp_path: Path) -> None:
    write_environment(tmp_path, mine=f"{line}\n")
    environment_identity("mine", tmp_path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("accelerate>=1.0", "'accelerate>=1.0' leaves the version open.*pin it, as in `accelerate==1.2.3`"),
        ("accelerate", "leaves the version open"),
        ("accelerate==1.*", "leaves the version open"),
        ("accelerate~=1.0", "leaves the version open"),
        ("accelerate!=1.0", "leaves the version open"),
        ("accelerate[x]", "leaves the version open"),
        ("accelerate>=1.0 --hash=sha256:abc", "leaves the version open"),
        ("-e .", "installs whatever lies there"),
        ("-e.", "installs whatever lies there"),
        ("--editable=.", "installs whatever lies there"),
        (".", "names no package and version"),
        ("./wheels/x.whl", "names no package and version"),
        ("https://example.org/x.whl", "names no package and version"),
        ("x @ https://example.org/x.whl", "may be other code tomorrow"),
        ("x @ git+https://example.org/x.git@main", "may be other code tomorrow"),
        ("x @ git+https://example.org/x.git@0123456", "may be other code tomorrow"),
        ("x==${VERSION}", "depends on a variable"),
        ("-c limits.txt", "a file of constraints is no part"),
        ("--pre", "can change which versions are installed"),
        ("numpy==2.4.6 numpy", "names no package and version"),
        ("-r mine.txt", "includes a file in itself"),
        ("-r gone.txt", "gone.txt: No such file"),
    ],
)
def test_lines_that_leave_a_version_open(line: str, expected: str, tmp_path: Path) -> None:
    write_environment(tmp_path, mine=f"# ours\n\nnumpy==2.4.6\n{line}\n")
    where = r"envs/" if "gone" in line else r"envs/mine\.txt: line 4: "
    with pytest.raises(ConfigError, match=f"^{where}.*{expected}"):
        environment_identity("mine", tmp_path)


def test_an_included_file_is_named_where_it_is_open_or_includes_back(tmp_path: Path) -> None:
    write_environment(tmp_path, mine="-r theirs.txt\nnumpy==2.4.6\n", theirs="accelerate>=1.0\n")
    with pytest.raises(ConfigError, match=r"^envs/theirs\.txt: line 1: 'accelerate>=1\.0'"):
        environment_identity("mine", tmp_path)
    write_environment(tmp_path, theirs="a==1\n-r mine.txt\n")
    with pytest.raises(ConfigError, match=r"^envs/theirs\.txt: line 2: .* includes a file in itself"):
        environment_identity("mine", tmp_path)
    (tmp_path / "envs" / "theirs.txt").write_bytes(b"a==1 # \xff\n")
    with pytest.raises(ConfigError, match=r"^envs/theirs\.txt: byte 8 is no UTF-8"):
        environment_identity("mine", tmp_path)


def test_the_requirements_in_identities_are_those_of_ever() -> None:
    torch = ["numpy==2.4.6", "torch==2.13.0"]
    assert environment_identity("torch", ROOT)["requirements"] == torch
    paper = ["axonn==0.2.0", "deepspeed==0.19.8", "megatron-core==0.16.1", "mpi4py==4.1.2", "mpich==5.0.2", *torch]
    assert environment_identity("axonn_paper", ROOT)["requirements"] == sorted(paper)
