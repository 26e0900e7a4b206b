"""What starts often imports what it needs and no more: entry points and the modules of the Snakefile."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
HEAVY = (
    "fastjsonschema", "jsonschema", "jax", "matplotlib", "numpy", "pandas", "psutil", "pynvml", "seaborn", "snakemake",
    "tensorflow", "tiktoken", "torch", "yaml",
)  # fmt: skip
# Reading config files with their schemas, and records.
CONFIG, RECORDS, TABLES = {"yaml", "jsonschema"}, {"fastjsonschema"}, {"numpy", "pandas"}
FIGURES = {"matplotlib", "seaborn"}
# What each entry point may import before it knows what is asked of it. What is not here may import nothing of HEAVY.
MAY_IMPORT = {
    "collect.py": CONFIG | RECORDS | TABLES,
    "compare_systems.py": CONFIG | TABLES,
    "describe_cluster.py": CONFIG,
    "launch.py": CONFIG,
    "make_figures.py": TABLES | FIGURES,
    "make_tables.py": TABLES,
    "status.py": CONFIG | RECORDS,
    "train.py": {"numpy"},
    "write_outputs.py": CONFIG | RECORDS | TABLES | FIGURES,
}
ENTRY_POINTS = sorted(path.name for path in SCRIPTS.glob("*.py"))


def heavy_after(code: str) -> set[str]:
    """Return which heavy packages a fresh Python has imported once it has run `code` with scripts/ on its path."""
    shown = f"print('heavy:', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\n{code}\n{shown}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].removeprefix("heavy:").split())


def imports_of_rules() -> list[str]:
    """Return the import statements of common.smk that take something of the project's modules."""
    lines = (ROOT / "workflow" / "rules" / "common.smk").read_text(encoding="utf-8").splitlines()
    others = ("from snakemake.", "from functools ", "from pathlib ")
    return [line for line in lines if line.startswith("from ") and not line.startswith(others)]


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_imports_what_it_needs(name: str) -> None:
    found = heavy_after(f"import {name.removesuffix('.py')}")
    assert found <= MAY_IMPORT.get(name, set())


def test_the_snakefile_s_modules_import_no_plots_tables_or_frameworks() -> None:
    found = heavy_after("\n".join(["import snakemake.io, snakemake.logging", *imports_of_rules()]))
    alone = heavy_after("import snakemake.io, snakemake.logging, snakemake.settings.types")
    assert found - alone <= CONFIG | RECORDS


def test_nothing_is_imported_from_a_rank_s_environment_by_the_workflow() -> None:
    """Adaptors are imported to plan with; their frameworks only in a rank's own Python."""
    adaptors = [path.stem for path in (SCRIPTS / "frameworks").glob("*.py") if path.stem != "__init__"]
    assert len(adaptors) > 5
    assert not heavy_after("\n".join(f"import frameworks.{name}" for name in adaptors)) & {"torch", "jax", "tensorflow"}


def test_the_imports_of_the_rules_are_looked_at() -> None:
    imported = [node for line in imports_of_rules() for node in ast.parse(line).body]
    modules = [node.module for node in imported if isinstance(node, ast.ImportFrom)]
    assert {"workflow_support.call", "snakemake_logger_plugin_cells"} <= set(modules)
    assert heavy_after("import pandas") >= {"pandas", "numpy"}
