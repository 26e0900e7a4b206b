"""Write a study's measurements, tables and figures from the records there are, cells missing or not.

The rules of the workflow do the same when every cell has its record; this is for after an interruption.
"""

from __future__ import annotations

import argparse
import sys

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.project_files import project_folder
from launcher.slurm.queue import look_at_queue
from papers import load_paper
from planning.studies import load_study
from records.standing import outcomes_now
from reporting.study_outputs import write_study_outputs
from settings.config import read_config

ROOT = project_folder()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", help="name of the file in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument("--partial", action="store_true", help="also when cells are missing")
    args = parser.parse_args()
    try:
        system = args.system or read_config(ROOT / "config" / "config.yaml", "config", ROOT)["system"]
        study = load_study(args.study, system, ROOT)
        queue = look_at_queue(study.system)
        outcomes = outcomes_now(study, ROOT / "results", ROOT, queue)
        # Those that this system is too small for among them.
        missing = sum(outcome.status == "missing" for outcome in outcomes.values())
        if missing and not args.partial:
            print(
                f"{missing} of {len(outcomes)} cells of {study.name} have no record yet; "
                f"--partial writes what there is",
                file=sys.stderr,
            )
            return 1
        folder = write_study_outputs(study, load_paper(study.paper), ROOT, queue)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"written to {folder.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
