"""What the README files say is there: every key of the schemas with its default, every file, study and example."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import frameworks
from metrics.columns import COLUMNS
from models.gpt import Gpt
from papers import load_paper, paper_names
from planning.adaptors import adaptor_names, load_adaptor
from planning.checks import check_model
from planning.studies import CLUSTER, expand_study, load_hardware, load_models, study_names
from settings.config import check_config, load_schema
from studies import ROOT, cpu_system

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "config/README.md").read_text(encoding="utf-8")
FRAMEWORKS = (ROOT / "scripts/frameworks/README.md").read_text(encoding="utf-8")
PAGES = {"README.md": README, "config/README.md": CONFIGURATION, "scripts/frameworks/README.md": FRAMEWORKS}

KEY_TABLE = ["key", "type", "default", "meaning"]
# The tables of config/README.md, in the order of the page: which object of which schema each one describes. An object
# that a schema gains has to be given a place here, or `test_every_object_of_a_schema_has_a_table` fails.
KEY_TABLES = (
    ("config", ""),
    ("study", ""),
    ("study", "properties.corpus.anyOf.1"),
    ("study", "properties.frameworks.additionalProperties.anyOf.1"),
    ("study", "$defs.layout"),
    ("study", "properties.time_limit_minutes.anyOf.1"),
    ("study", "properties.window"),
    ("study", "$defs.comparison"),
    ("study", "$defs.comparison.properties.points.items"),
    ("study", "$defs.comparison.properties.cross"),
    ("system", ""),
    ("system", "properties.environments.additionalProperties"),
    ("system", "properties.slurm"),
    ("models", "$defs.gpt"),
    ("hardware", "additionalProperties"),
)
SCHEMAS = tuple(dict.fromkeys(schema for schema, _ in KEY_TABLES))


@dataclass(frozen=True)
class Table:
    headings: list[str]
    rows: list[list[str]]


def tables(text: str) -> list[Table]:
    """The Markdown tables of a page."""
    found = []
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()]
        found.append(Table(cells[0], cells[2:]))
    return found


def named(cell: str) -> str:
    """`name` without its backticks."""
    assert re.fullmatch(r"`[^`]+`", cell), f"{cell!r} is no name in backticks"
    return cell.strip("`")


def objects(rules: Any, path: str = "") -> Iterator[str]:
    """Where in a schema there are objects with properties of their own."""
    if isinstance(rules, Mapping):
        if "properties" in rules:
            yield path
        for key, value in rules.items():
            if key == "if":  # a question, and no place for keys
                continue
            yield from objects(value, f"{path}.{key}".lstrip("."))
    elif isinstance(rules, list):
        for index, value in enumerate(rules):
            yield from objects(value, f"{path}.{index}")


def at(rules: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        rules = rules[int(part)] if isinstance(rules, list) else rules[part]
    return rules


def resolved(rule: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return at(schema, rule["$ref"].removeprefix("#/").replace("/", ".")) if "$ref" in rule else rule


def allowed_names(rule: Mapping[str, Any]) -> list[str]:
    """The texts that a property may be, where it may not be any."""
    branches = [rule, *rule.get("anyOf", ())]
    return [
        str(value).lower() if isinstance(value, bool) else value
        for branch in branches
        for value in (*branch.get("enum", ()), *([branch["const"]] if "const" in branch else ()))
    ]


KEY_ROWS = [table for table in tables(CONFIGURATION) if table.headings == KEY_TABLE]


def test_every_object_of_a_schema_has_a_table() -> None:
    assert len(KEY_ROWS) == len(KEY_TABLES)
    there = {(schema, path) for schema in SCHEMAS for path in objects(load_schema(schema, ROOT))}
    assert there == set(KEY_TABLES)


@pytest.mark.parametrize(("index", "schema", "path"), [(i, *table) for i, table in enumerate(KEY_TABLES)])
def test_every_key_and_default_is_documented(index: int, schema: str, path: str) -> None:
    whole = load_schema(schema, ROOT)
    rules = at(whole, path)
    rows = {named(row[0]): row for row in KEY_ROWS[index].rows}
    assert list(rows) == list(rules["properties"]), f"keys of {schema} {path}"
    for key, rule in rules["properties"].items():
        _, types, default, meaning = rows[key]
        assert meaning
        if key in rules.get("required", ()):
            assert default == "**required**", key
        elif "default" in rule:
            assert yaml.safe_load(named(default)) == rule["default"], key
        else:
            assert default == "none", key
        for name in allowed_names(resolved(rule, whole)):
            assert f"`{name}`" in types, f"{key} may be {name}"


def test_defaults_outside_the_schemas_agree() -> None:
    # Not filled in by the schema check: the code has them.
    shape = {"num_layers": 1, "hidden_size": 1, "num_heads": 1, "seq_length": 2, "vocab_size": 2}
    model = Gpt("any", **shape)
    properties = load_schema("models", ROOT)["$defs"]["gpt"]["properties"]
    assert (model.architecture, model.tie_embeddings) == tuple(
        properties[key]["default"] for key in ("architecture", "tie_embeddings")
    )


def shipped(folder: str, suffix: str) -> set[str]:
    """Stems of the files that belong to the project: what a user has added needs no place in its pages."""
    command = ["git", "ls-files", "-z", "--", folder]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # no checkout
        listed = [str(path.relative_to(ROOT)) for path in (ROOT / folder).iterdir()]
    return {Path(name).stem for name in listed if Path(name).suffix == suffix}


def test_options_of_every_framework_are_documented() -> None:
    (table,) = [table for table in tables(CONFIGURATION) if table.headings[0] == "framework"]
    documented = [(named(row[0]), row[1], row[2], row[3]) for row in table.rows]
    names = shipped("scripts/frameworks", ".py") & set(adaptor_names())
    assert {row[0] for row in documented} == names
    for name in names:
        declared = load_adaptor(name).FRAMEWORK
        rows = [row for row in documented if row[0] == name]
        assert all(set(re.findall("data|tensor|pipeline", row[1])) == declared.parallelism for row in rows)
        options = {
            named(row[2]): tuple(yaml.safe_load(named(value)) for value in row[3].split(", ")) for row in rows if row[2]
        }
        assert options == dict(declared.options)


def test_tables_and_figures_of_every_paper_are_documented() -> None:
    rows = {row[0]: row[3] for row in KEY_ROWS[KEY_TABLES.index(("study", ""))].rows}
    for name in paper_names():
        paper = load_paper(name)
        assert f"`{name}`" in rows["`paper`"]
        assert all(f"`{table}`" in rows["`tables`"] for table in paper.TABLES)
        assert all(f"`{figure}`" in rows["`figures`"] for figure in paper.FIGURES)


def test_every_study_and_only_studies_are_in_the_readme() -> None:
    (table,) = [table for table in tables(README) if table.headings[0] == "study"]
    assert {named(row[0]) for row in table.rows} == shipped("config/studies", ".yaml")


def test_metrics_of_the_readme_are_columns() -> None:
    (table,) = [table for table in tables(README) if table.headings[0] == "column"]
    columns = {column.name for column in COLUMNS}
    assert {named(row[0]) for row in table.rows} <= columns


# -- files and commands ------------------------------------------------------------------------------------------------

FOLDERS = ("config", "corpora", "docs", "envs", "plugins", "profiles", "reference", "scripts", "tests", "workflow")
EXAMPLES = ("mine", "buckets")  # studies that a page tells the reader to write


def without_comments(text: str) -> str:
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = without_comments(PAGES[page])
    written = {f"config/studies/{name}.yaml" for name in EXAMPLES}
    written |= {"scripts/frameworks/torch_ddp_buckets.py", f"config/systems/{CLUSTER}.yaml"}
    paths = set(re.findall(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./<>*-]*\w)", text))
    for path in sorted(path for path in paths if not set("<>*") & set(path)):
        assert path in written or (ROOT / path).exists(), path
    for target in re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_name_real_studies_and_options(page: str) -> None:
    text = without_comments(PAGES[page])
    known = {*study_names(ROOT), *EXAMPLES}
    for words in re.findall(r"\./run((?: [^`\s#]+)*)", text):
        targets = re.sub(r"(--config|--configfile|--profile) \S+", "", words).split()
        assert all(word == "-n" or word in known or word == "<study>" for word in targets), words
    files = ("status.py", "reporting/forgetting.py", "write_outputs.py")
    status = "".join((ROOT / "scripts" / file).read_text() for file in files)
    for option in re.findall(r"(?:status|make_report)\.py[^`\n]*?(--[\w-]+)", text):
        assert f'"{option}"' in status, option
    assert not (set(re.findall(r"\./test (--[\w-]+)", text)) - {"--quick", "--long"})


@pytest.mark.parametrize("page", PAGES)
def test_pages_hold_no_paths_of_a_machine_and_no_registry(page: str) -> None:
    assert not re.findall(r"(?<![\w.])/(?:home|root|work|Users|opt|mnt)/", PAGES[page])
    assert not re.findall(r"pypi|pythonhosted|anaconda\.org|download\.pytorch", PAGES[page], re.IGNORECASE)


@pytest.mark.parametrize("path", ["LICENSE", ".snakemake-workflow-catalog.yml", "reference/README.md", "run", "test"])
def test_what_a_stranger_looks_for_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_conda_environment_has_pips_pins() -> None:
    wanted = [
        line
        for name in ("torch", "uv", "workflow")
        for line in (ROOT / f"envs/{name}.txt").read_text().splitlines()
        # A job in that environment is not the one that submits it.
        if line and not line.startswith(("#", "-r ", "./plugins"))
    ]
    (pip,) = [
        entry["pip"]
        for entry in yaml.safe_load((ROOT / "envs/workflow.yaml").read_text())["dependencies"]
        if isinstance(entry, dict)
    ]
    assert sorted(pip) == sorted(wanted)


# -- examples ----------------------------------------------------------------------------------------------------------


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example_adaptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (code,) = blocks(FRAMEWORKS, "python")
    (tmp_path / "torch_ddp_buckets.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(frameworks, "__path__", [*frameworks.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "frameworks.torch_ddp_buckets", raising=False)
    return load_adaptor("torch_ddp_buckets")


def expand_example(text: str) -> Any:
    config = check_config(yaml.safe_load(text), "study", ROOT, "example")
    return expand_study("example", "example", config, cpu_system(), load_models(ROOT), load_hardware(ROOT), ROOT)


def test_the_example_study_and_model_are_valid() -> None:
    study, model = (yaml.safe_load(text) for text in blocks(README, "yaml"))
    assert len(expand_example(yaml.safe_dump(study, sort_keys=False)).planned) == 6
    ((name, shape),) = check_config(model, "models", ROOT, "example").items()
    check_model("example", Gpt(name, **shape))


def test_the_example_framework_is_valid_in_its_study(example_adaptor: ModuleType) -> None:
    (text,) = blocks(FRAMEWORKS, "yaml")
    planned = expand_example(text).planned
    cells = [one.cell for one in planned if one.cell.framework == "torch_ddp_buckets"]
    assert [cell.layout.options for cell in cells] == [{"bucket_mib": 1}, {"bucket_mib": 100}] * 2
    assert {example_adaptor.unsupported_reason(cell) for cell in cells} == {None}


@pytest.mark.slow
def test_the_example_framework_builds_and_trains(
    example_adaptor: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On one rank; two would need processes that find the example."""
    import numpy as np

    from contracts.adaptor import Job
    from contracts.cell import Layout
    from workloads.rendezvous import meeting_variables
    from workloads.training.loop import NUM_BATCHES, run_batches
    from workloads.training.training_cell import TrainingCell

    shape = Gpt("tiny", num_layers=1, hidden_size=8, num_heads=1, seq_length=8, vocab_size=64)
    layout = Layout(1, options={"bucket_mib": 1}, default_options={"bucket_mib": 25})
    cell = TrainingCell(
        framework="torch_ddp_buckets",
        adaptor_version=1,
        loop_version=1,
        environment={},
        model=shape,
        num_gpus=1,
        layout=layout,
        global_batch_size=2,
        precision="fp32",
        activation_checkpointing="none",
        corpus={},
        seed=1,
        learning_rate=1e-3,
        adam_epsilon=1e-8,
        device="cpu",
        gpus_per_node=1,
    )
    for name, value in meeting_variables(tmp_path, "127.0.0.1", "the example").items():
        monkeypatch.setenv(name, value)
    engine = example_adaptor.create_engine(Job(cell, rank=0, world_size=1, local_rank=0))
    try:
        timings = run_batches(engine, lambda step: np.full((2, 9), step % 3, dtype=np.int64))
    finally:
        engine.close()
    assert len(timings.losses) == NUM_BATCHES
    assert all(0 < loss < 10 for loss in timings.losses)
