"""Find adaptors by the name a study gives; nobody keeps a list of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

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
    """What of `envs/<name>.txt` decides a measurement: its requirements, without comments, blank lines and order."""
    path = root / "envs" / f"{name}.txt"
    if not path.is_file():
        raise ConfigError(f"envs/{name}.txt is missing: a framework declares it as its environment")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {"name": name, "requirements": sorted(line for line in lines if line)}
