"""Draft config/systems/cluster.yaml from what Slurm says: partition, GPUs, cores, memory, limits, accounts, MPI.

Each value has a comment that says where it is from; what only you can know is marked. Nothing that is there is
replaced.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.atomic import replace_when_complete
from contracts.errors import ConfigError
from contracts.project_files import project_folder
from describing.answers import ask_for_answers, read_answers
from describing.draft import MARK, draft_of
from describing.site import site_of
from planning.studies import CLUSTER, load_hardware, load_system

ROOT = project_folder()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", help="where to measure (default: the partition with most GPUs)")
    parser.add_argument("--system", default=CLUSTER, help=f"name of the file in config/systems/ (default: {CLUSTER})")
    parser.add_argument("--answers", type=Path, help="folder with Slurm's answers as texts, in place of asking it")
    args = parser.parse_args()
    path = ROOT / "config" / "systems" / f"{args.system}.yaml"
    try:
        if path.exists():
            raise ConfigError(f"{path.relative_to(ROOT)} is there and stays; give another name with --system")
        answers = read_answers(args.answers) if args.answers else ask_for_answers()
        draft = draft_of(site_of(answers, args.partition), load_hardware(ROOT))
        with replace_when_complete(path) as file:
            file.write(draft.text)
        load_system(args.system, ROOT)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"written: {path.relative_to(ROOT)}; {MARK}, so look at these lines in it:")
    for marked in draft.marked:
        print(f"    {marked}")
    named = "" if args.system == CLUSTER else f" --config system={args.system}"
    print(f"then see what it would cost: snakemake --profile slurm -n{named}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
