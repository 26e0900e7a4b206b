"""Note the path of the Python this runs under, which must be a conda environment's (snakemake --sdm conda)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contracts.atomic import replace_when_complete


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="file for the interpreter's path")
    args = parser.parse_args()
    if Path(os.environ.get("CONDA_PREFIX", "/nowhere")).resolve() != Path(sys.prefix).resolve():
        print(
            "this is not the Python of a conda environment: a system file asks for one (environments, kind conda), so "
            "call snakemake with --sdm conda",
            file=sys.stderr,
        )
        return 1
    with replace_when_complete(args.output, "w") as file:
        file.write(f"{sys.executable}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
