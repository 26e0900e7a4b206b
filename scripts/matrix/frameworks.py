"""Find adaptors by the name a study gives; nobody keeps a list of them."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from matrix.cells import identity_hash
from matrix.errors import ConfigError, nearest
from training.contract import Framework


def load_adaptor(name: str) -> ModuleType:
    """The module `frameworks.<name>`; ConfigError lists the right names, or says what the file lacks."""
    known = adaptor_names()
    if name not in known:
        raise ConfigError(f"there is no framework {name!r} in scripts/frameworks{nearest(name, known)}")
    try:
        module = importlib.import_module(f"frameworks.{name}")
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"scripts/frameworks/{name}.py cannot be imported: {type(error).__name__}: {error}"
        ) from error
    lacking = [part for part in ("FRAMEWORK", "unsupported_reason", "create_engine") if not hasattr(module, part)]
    if lacking:
        raise ConfigError(f"scripts/frameworks/{name}.py lacks {', '.join(lacking)} (see scripts/training/contract.py)")
    declared = module.FRAMEWORK
    if not isinstance(declared, Framework) or type(declared.version) is not int:
        raise ConfigError(
            f"scripts/frameworks/{name}.py: FRAMEWORK is no training.contract.Framework with a whole version"
        )
    return module


def adaptor_names() -> list[str]:
    import frameworks

    stems = (path.stem for folder in frameworks.__path__ for path in Path(folder).glob("*.py"))
    return sorted(stem for stem in stems if stem != "__init__" and stem.isidentifier())


def environment_identity(name: str, root: Path) -> dict[str, object]:
    """What of an environment's files decides a measurement: its requirements, without comments, blank lines and order,
    those of files it includes among them; and a digest of `envs/<name>.sh` where it has such a recipe.
    """
    path = root / "envs" / f"{name}.txt"
    if not path.is_file():
        raise ConfigError(f"envs/{name}.txt is missing: a framework declares it as its environment")
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
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"envs/{path.name}: {error.strerror or error}") from None
    for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines):
        included = re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line)
        if included:
            yield from _requirements(path.parent / included[1])
        elif line:
            yield line
