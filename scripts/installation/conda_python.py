"""Note which Python a conda environment has, for a Snakemake that has made one (--sdm conda)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from contracts.atomic import replace_when_complete
from contracts.errors import ConfigError


def note_interpreter(note: Path) -> None:
    """Write the path of the Python that runs this to a file; ConfigError where it is no conda environment's."""
    if Path(os.environ.get("CONDA_PREFIX", "/nowhere")).resolve() != Path(sys.prefix).resolve():
        raise ConfigError(
            "this is not the Python of a conda environment: a system file asks for one (environments, kind conda), so "
            "call snakemake with --sdm conda"
        )
    with replace_when_complete(note, "w") as file:
        file.write(f"{sys.executable}\n")
