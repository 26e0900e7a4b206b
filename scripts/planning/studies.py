"""Study file -> cells: everything resolved, every pitfall refused, nothing started."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError, nearest, one_line, shown_value
from contracts.model import Model
from contracts.project_files import shipped_names
from corpus.sources import resolve_corpus
from models.architectures import model_of
from planning import checks
from planning.adaptors import environment_identity, frameworks_shown_as, load_adaptor
from planning.candidates import check_all_used, check_layout_keys, layouts_at
from planning.plan import Comparison, Obstacle, PlannedCell, Study
from settings.config import check_config, read_config, read_yaml
from settings.systems import System, system_from_config
from workloads.training.loop import LOOP_VERSION
from workloads.training.training_cell import TrainingCell

# Names become targets, folders and words of command lines.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
NAME_RULE = "a name is letters, digits, - and _, at most 100, with a letter or digit first"
# Folders beside those of systems, and beside those of a system's studies.
NO_SYSTEM = ("tokens", "comparisons", "slurm-logs", "changes")
NO_STUDY = ("cells",)
# The system of profiles/slurm; no such file is in the project, because every site's is another.
CLUSTER = "cluster"
# A key of time_limit_minutes that is no model's name.
GPU_LIMIT = re.compile(r"[1-9][0-9]{0,8} GPUs")


def study_names(root: Path) -> list[str]:
    """The studies there are; the one thing in the project that is listed from a folder."""
    return sorted(path.stem for path in (root / "config" / "studies").glob("*.yaml") if NAME.fullmatch(path.stem))


def unusable_studies(root: Path, taken: Collection[str]) -> dict[str, str]:
    """Study files whose name cannot be a target, with the reason; `taken` are the names of the workflow's own rules."""
    unusable = {}
    for path in sorted((root / "config" / "studies").glob("*.yaml")):
        where = f"config/studies/{path.name}"
        if not NAME.fullmatch(path.stem):
            unusable[path.stem] = f"{where}: {NAME_RULE}; rename the file"
        elif path.stem in NO_STUDY:
            unusable[path.stem] = f"{where}: results/<system>/{path.stem} is kept for something else; rename the file"
        elif path.stem in taken:
            unusable[path.stem] = f"{where}: a rule of the workflow has this name; rename the file"
    return unusable


def load_system(name: str, root: Path, kept: Path | None = None) -> System:
    """Return a system as its file describes it, or as `kept` does, the file as it was when a job was submitted."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"system {name!r}: {NAME_RULE}")
    if name in NO_SYSTEM:
        raise ConfigError(f"system {name!r}: results/{name} is kept for something else; rename the file")
    path = root / "config" / "systems" / f"{name}.yaml"
    if name == CLUSTER and not path.exists():
        raise ConfigError(
            f"config/systems/{CLUSTER}.yaml: there is no such file, and it says how your site wants its jobs. On a "
            f"login node, python scripts/describe_cluster.py drafts it from what Slurm says; or copy the nearest of "
            f"{', '.join(_examples(root))} in config/systems/ and edit it (docs/cluster.md has the steps)"
        )
    config = read_config(kept or path, "system", root)
    environments = shipped_names(root, "envs/*.txt")
    for environment in config["environments"]:
        if environment not in environments:
            raise ConfigError(
                f"config/systems/{name}.yaml: environments: there is no envs/{environment}.txt"
                f"{nearest(environment, environments)}"
            )
    try:
        return system_from_config(name, config)
    except ValueError as error:
        raise ConfigError(f"config/systems/{name}.yaml: {error}") from None


def _examples(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "config" / "systems").glob("example-*.yaml"))


def configured_system(root: Path) -> str:
    """Return the system that config/config.yaml names."""
    return str(read_config(root / "config" / "config.yaml", "config", root)["system"])


def load_hardware(root: Path) -> dict[str, Any]:
    return read_config(root / "config" / "hardware.yaml", "hardware", root)


def load_models(root: Path) -> dict[str, Model]:
    data = read_config(root / "config" / "models.yaml", "models", root)
    models = {}
    for name, entry in data.items():
        where = f"config/models.yaml: {name}"
        try:
            models[name] = model_of(name, entry)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        checks.check_model(where, models[name])
    return models


def load_study(name: str, system_name: str, root: Path) -> Study:
    """The study `config/studies/<name>.yaml` on a system, all its cells in the order of the file.

    Raises ConfigError for whatever is wrong in a file it reads.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"study {name!r}: {NAME_RULE}")
    path = root / "config" / "studies" / f"{name}.yaml"
    where = f"config/studies/{name}.yaml"
    config = check_config(read_yaml(path, root), "study", root, where)
    return expand_study(
        name, where, config, load_system(system_name, root), load_models(root), load_hardware(root), root
    )


def expand_study(
    name: str,
    where: str,
    config: Mapping[str, Any],
    system: System,
    models: Mapping[str, Model],
    hardware: Mapping[str, Any],
    root: Path,
) -> Study:
    """A validated study file -> Study. `where` heads every message."""
    checks.check_window(where, config["window"])
    checks.check_devices(f"config/systems/{system.name}.yaml", system.device, system.devices, hardware)
    try:
        corpus = resolve_corpus(config["corpus"], root)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{where}: corpus: {error}") from None
    frameworks = {}
    for framework in config["frameworks"]:
        try:
            frameworks[framework] = load_adaptor(framework)
        except ConfigError as error:
            raise ConfigError(f"{where}: frameworks: {error}") from None
    environments = {name: _environment(where, name, module, root) for name, module in frameworks.items()}
    candidates = {
        framework: check_layout_keys(
            f"{where}: frameworks.{framework}",
            (entry or {}).get("layouts", [{}]),
            frameworks[framework].FRAMEWORK,
            models,
        )
        for framework, entry in config["frameworks"].items()
    }

    comparisons = []
    num_planned = 0
    used_models: dict[str, Model] = {}
    matched: set[tuple[str, int]] = set()
    for label, comparison in config["comparisons"].items():
        here = f"{where}: comparisons.{label}"
        points = _points(here, comparison, config, models)
        checks.check_scaling(here, comparison["scaling"], points)
        used_models |= {model.name: model for model, _, _ in points}
        planned: dict[tuple[str, int], PlannedCell] = {}
        for framework in _chosen_frameworks(here, comparison, config):
            for model, num_gpus, batch in points:
                checks.check_vocabulary(here, model)
                for index, layout in layouts_at(
                    candidates[framework], frameworks[framework].FRAMEWORK, model, num_gpus, config
                ):
                    matched.add((framework, index))
                    at = f"{here}: {framework}, {model.name} on {system.device.counted(num_gpus)}"
                    checks.check_split(at, model, layout, num_gpus, batch)
                    cell = TrainingCell(
                        framework=framework,
                        adaptor_version=frameworks[framework].FRAMEWORK.version,
                        loop_version=LOOP_VERSION,
                        environment=environments[framework],
                        model=model,
                        num_gpus=num_gpus,
                        layout=layout,
                        global_batch_size=batch,
                        precision=config["precision"],
                        activation_checkpointing=config["activation_checkpointing"],
                        corpus=corpus.identity,
                        seed=config["seed"],
                        learning_rate=float(config["learning_rate"]),
                        adam_epsilon=float(config["adam_epsilon"]),
                        device=system.device,
                        # A cell that fits on one node is the same cell on a system of larger nodes.
                        gpus_per_node=min(num_gpus, system.gpus_per_node),
                        threads_per_process=system.threads_per_process,
                    )
                    obstacle = _obstacle(cell, frameworks[framework], system)
                    num_planned += config["repeats"]
                    checks.check_number_planned(where, num_planned, config["repeats"])
                    for repeat in range(1, config["repeats"] + 1):
                        one = PlannedCell(label, cell, repeat, obstacle)
                        planned.setdefault(one.key, one)
        comparisons.append(
            Comparison(
                label, comparison["scaling"], comparison.get("baseline", "smallest_common"), tuple(planned.values())
            )
        )
    check_all_used(where, candidates, matched)
    checks.check_shapes(where, used_models.values())
    limits_by_model, limits_by_gpus = _time_limits(where, config["time_limit_minutes"], used_models, models)
    return Study(
        name=name,
        title=one_line(config["title"]),
        system=system,
        corpus=corpus,
        corpus_setting=config["corpus"],
        paper=config["paper"],
        tables=tuple(config["tables"]),
        figures=tuple(config["figures"]),
        reference=config["reference"],
        frameworks=tuple(config["frameworks"]),
        models=tuple(used_models.values()),
        comparisons=tuple(comparisons),
        time_limit_minutes=limits_by_model,
        time_limit_minutes_by_gpus=limits_by_gpus,
        environments={name: adaptor.FRAMEWORK.environment for name, adaptor in frameworks.items()},
        shown_as=frameworks_shown_as(),
    )


def _environment(where: str, framework: str, adaptor: Any, root: Path) -> dict[str, object]:
    try:
        return environment_identity(adaptor.FRAMEWORK.environment, root)
    except ConfigError as error:
        raise ConfigError(f"{where}: frameworks.{framework}: {error}") from None


def _points(
    where: str, comparison: Mapping[str, Any], config: Mapping[str, Any], models: Mapping[str, Model]
) -> list[checks.Point]:
    listed = list(comparison.get("points", ()))
    crossed = comparison.get("cross", {"models": (), "num_gpus": ()})
    checks.check_number_planned(where, len(crossed["models"]) * len(crossed["num_gpus"]), 1)
    for model in comparison.get("cross", {}).get("models", ()):
        listed += [{"model": model, "num_gpus": num_gpus} for num_gpus in comparison["cross"]["num_gpus"]]
    if not listed:
        raise ConfigError(f"{where}: has neither `points` nor `cross`, so it measures nothing; add one of them")
    points = []
    for point in listed:
        if point["model"] not in models:
            raise ConfigError(
                f"{where}: there is no model {shown_value(point['model'])}{nearest(point['model'], models)}"
            )
        batch = _batch_size(where, point, comparison, config)
        points.append((models[point["model"]], point["num_gpus"], batch))
    return list(dict.fromkeys(points))


def _batch_size(where: str, point: Mapping[str, Any], comparison: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """The innermost of point, comparison and study decides."""
    for level in (point, comparison, config):
        given = [key for key in ("global_batch_size", "batch_size_per_gpu") if key in level]
        if len(given) == 2:
            raise ConfigError(f"{where}: global_batch_size and batch_size_per_gpu are both given; keep one of them")
        if given == ["global_batch_size"]:
            return level["global_batch_size"]
        if given == ["batch_size_per_gpu"]:
            return level["batch_size_per_gpu"] * point["num_gpus"]
    raise ConfigError(f"{where}: no batch size; give global_batch_size (or batch_size_per_gpu) in the study or here")


def _chosen_frameworks(where: str, comparison: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    chosen = comparison.get("frameworks", list(config["frameworks"]))
    for framework in chosen:
        if framework not in config["frameworks"]:
            raise ConfigError(
                f"{where}.frameworks: {shown_value(framework)} is none of the study's"
                f"{nearest(framework, config['frameworks'])}"
            )
    return chosen


def _obstacle(cell: TrainingCell, adaptor: Any, system: System) -> Obstacle | None:
    can = adaptor.FRAMEWORK.parallelism
    degrees = {
        "data": cell.layout.data_parallel,
        "tensor": cell.layout.tensor_parallel,
        "pipeline": cell.layout.pipeline_parallel,
    }
    beyond = [axis for axis, degree in degrees.items() if degree > 1 and axis not in can]
    if beyond:
        able = ", ".join(sorted(can)) or f"none: it runs on one {cell.device.unit}"
        return Obstacle("unsupported", f"{cell.framework} has no {' or '.join(beyond)} parallelism (it has {able})")
    architectures = adaptor.FRAMEWORK.architectures
    if cell.model.architecture not in architectures:
        trained = ", ".join(sorted(architectures))
        return Obstacle("unsupported", f"{cell.framework} trains {trained} models, not {cell.model.architecture}")
    if cell.layout.stage_layers and not adaptor.FRAMEWORK.uneven_stages:
        return Obstacle("unsupported", f"{cell.framework} gives every pipeline stage the same number of layers")
    # Before what the adaptor says of the device: the system that is large enough may have another one.
    if cell.num_gpus > system.max_gpus:
        needed = cell.device.counted(cell.num_gpus)
        return Obstacle("missing", f"needs {needed}, this system ({system.name}) has {system.max_gpus}")
    try:
        reason = adaptor.unsupported_reason(cell)
    except Exception as error:
        raise ConfigError(
            f"scripts/frameworks/{cell.framework}.py: unsupported_reason failed for {cell.label()}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return Obstacle("unsupported", one_line(str(reason))) if reason else None


def _time_limits(
    where: str, limit: float | Mapping[str, float], used: Mapping[str, Model], models: Mapping[str, Model]
) -> tuple[dict[str, float], dict[int, float]]:
    """Return the minutes of every used model, and those of the numbers of GPUs that are named (`384 GPUs`)."""
    named = limit if isinstance(limit, Mapping) else {"default": limit}
    by_gpus = {int(key.split()[0]): float(minutes) for key, minutes in named.items() if GPU_LIMIT.fullmatch(key)}
    for name in named:
        if name != "default" and name not in models and not GPU_LIMIT.fullmatch(name):
            raise ConfigError(
                f"{where}: time_limit_minutes: there is no model {shown_value(name)}{nearest(name, models)}; "
                f"a number of GPUs is written as in `384 GPUs`"
            )
    return {name: float(named.get(name, named["default"])) for name in used}, by_gpus
