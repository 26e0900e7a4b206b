"""Find adaptors by the name a study gives; nobody keeps a list of them."""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from contracts.adaptor import Framework
from contracts.cell import identity_hash
from contracts.errors import ConfigError, nearest, shown_value
from contracts.project_files import shipped
from contracts.shown_as import ShownAs, mistake_in, with_styles
from models.architectures import architecture_names
from settings.requirements import check_pinned

# What a layout can be cut along: degrees above 1 that an adaptor may declare.
PARALLELISM = ("data", "tensor", "pipeline")
COMMON_LAYOUT_KEYS = (
    *("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size", "stage_layers", "num_gpus"),
    "models",
)
_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OPTION = re.compile(r"[a-z][a-z0-9_]{0,99}")


def load_adaptor(name: str) -> ModuleType:
    """The module `frameworks.<name>`; ConfigError lists the right names, or says what the file lacks."""
    known = adaptor_names()
    if name not in known:
        raise ConfigError(f"there is no framework {shown_value(name)} in scripts/frameworks{nearest(name, known)}")
    try:
        module = importlib.import_module(f"frameworks.{name}")
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"scripts/frameworks/{name}.py cannot be imported: {type(error).__name__}: {error}"
        ) from error
    lacking = [part for part in ("FRAMEWORK", "unsupported_reason", "create_engine") if not hasattr(module, part)]
    if lacking:
        raise ConfigError(f"scripts/frameworks/{name}.py lacks {', '.join(lacking)} (see scripts/contracts/adaptor.py)")
    mistake = _mistake_in(module.FRAMEWORK) or mistake_in(_declared_shown_as(module))
    if mistake:
        raise ConfigError(f"scripts/frameworks/{name}.py: {mistake} (see scripts/contracts/adaptor.py)")
    return module


def frameworks_shown_as() -> dict[str, ShownAs]:
    """Return what every adaptor of this checkout is called in tables and figures, and its style there."""
    return with_styles({name: _shown_as_if_usable(name) for name in adaptor_names()})


def _shown_as_if_usable(name: str) -> ShownAs:
    """A faulty adaptor is an error of the studies that name it; to all others it is one without a style of its own."""
    try:
        return _declared_shown_as(load_adaptor(name))
    except ConfigError:
        return ShownAs()


def _declared_shown_as(module: ModuleType) -> Any:
    return module.shown_as() if hasattr(module, "shown_as") else ShownAs()


def _mistake_in(declared: Any) -> str:
    """Return what is wrong in an adaptor's declaration; empty where nothing is."""
    if not isinstance(declared, Framework):
        return "FRAMEWORK is no contracts.adaptor.Framework"
    if type(declared.version) is not int or declared.version < 1:
        return f"version {shown_value(declared.version)} is no whole number from 1"
    if not isinstance(declared.environment, str) or not _ENVIRONMENT.fullmatch(declared.environment):
        return f"environment {shown_value(declared.environment)} is no name of a file in envs/ without its .txt"
    if not isinstance(declared.parallelism, frozenset | set):
        return f'parallelism {shown_value(declared.parallelism)} is no set; write frozenset({{"data"}})'
    for word in declared.parallelism:
        if word not in PARALLELISM:
            return f"parallelism {shown_value(word)} is not known{nearest(word, PARALLELISM)}"
    if not isinstance(declared.options, Mapping):
        return f"options {shown_value(declared.options)} is no mapping of a name to its allowed values"
    for option, allowed in declared.options.items():
        mistake = _mistake_in_option(option, allowed)
        if mistake:
            return mistake
    if not isinstance(declared.packages, tuple | list) or not all(isinstance(p, str) for p in declared.packages):
        return f'packages {shown_value(declared.packages)} is no tuple of names; write ("name",)'
    if not isinstance(declared.architectures, frozenset | set) or not declared.architectures:
        return f'architectures {shown_value(declared.architectures)} is no set of names; write frozenset({{"gpt"}})'
    for word in declared.architectures:
        if word not in architecture_names():
            return f"architectures: {shown_value(word)} is no file in models/{nearest(word, architecture_names())}"
    for flag in ("untraced_communication", "mpi", "uneven_stages"):
        if not isinstance(getattr(declared, flag), bool):
            return f"{flag} {shown_value(getattr(declared, flag))} is neither True nor False"
    return ""


def _mistake_in_option(option: Any, allowed: Any) -> str:
    if not isinstance(option, str) or not _OPTION.fullmatch(option):
        return f"options: {shown_value(option)} is no name of small letters, digits and _"
    if option in COMMON_LAYOUT_KEYS:
        return f"options: {option} is a key of every framework's layouts; use another name"
    if not isinstance(allowed, tuple | list) or not allowed:
        return f"options: {option} has {shown_value(allowed)} and no tuple of allowed values, the first the default"
    for index, value in enumerate(allowed):
        is_number = isinstance(value, float) and math.isfinite(value)
        if not (isinstance(value, str | bool | int) or value is None or is_number):
            return f"options: {option}: {shown_value(value)} is no text, number, True, False or None"
        # As Python compares: 1 and True would be one value to what leaves a default out of a cell's identity.
        if value in allowed[:index]:
            return f"options: {option} has {shown_value(value)} twice"
    return ""


def adaptor_names() -> list[str]:
    import frameworks

    stems = (path.stem for folder in frameworks.__path__ for path in Path(folder).glob("*.py"))
    return sorted(stem for stem in stems if stem != "__init__" and stem.isidentifier())


def environment_identity(name: str, root: Path) -> dict[str, object]:
    """What of an environment's files decides a measurement: its requirements, without comments, blank lines and order,
    those of files it includes among them; and a digest of `envs/<name>.sh` where it has such a recipe.

    Raises ConfigError where a file is missing or leaves a version open.
    """
    path = shipped(root, f"envs/{name}.txt")
    if not path.is_file():
        raise ConfigError(f"envs/{name}.txt is missing: a framework declares it as its environment")
    check_pinned(path, root)
    identity: dict[str, object] = {"name": name, "requirements": sorted(set(_requirements(path)))}
    recipe = path.with_suffix(".sh")
    if recipe.is_file():
        identity["recipe_sha256"] = recipe_digest(recipe.read_bytes())
    return identity


def recipe_digest(content: bytes) -> str:
    """Return the SHA-256 that stands for a recipe in its cells' identity.

    A recipe that builds the same as an earlier one, where that one could build at all, names the digest of the earlier
    in a line `# stands-for-sha256: <64 hex digits>`, so that mending it orphans no record.
    """
    named = re.search(rb"^# stands-for-sha256: ([0-9a-f]{64})$", content, re.MULTILINE)
    return named[1].decode() if named else hashlib.sha256(content).hexdigest()


def environment_digest(name: str, root: Path) -> str:
    """12 hex digits for what `environment_identity` tells of an environment's files: the folder it is made in."""
    return identity_hash(environment_identity(name, root))


def _requirements(path: Path) -> Iterator[str]:
    """The lines of a requirements file that pip would act on, `-r` lines replaced by what they include."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines):
        included = re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line)
        if included:
            yield from _requirements(path.parent / included[1])
        elif line:
            yield line
