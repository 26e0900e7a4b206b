"""Write a study's measurements, tables and figures from the records there are, cells missing or not.

The rules of the workflow do the same when every cell has its record; this is for after an interruption.
"""

from __future__ import annotations

import argparse
import sys

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.project_files import project_folder
from papers import load_paper
from planning.studies import configured_system, load_study
from reporting.study_outputs import CellsMissing, write_present_outputs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", help="name of the file in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument("--partial", action="store_true", help="also when cells are missing")
    args = parser.parse_args()
    root = project_folder()
    try:
        study = load_study(args.study, args.system or configured_system(root), root)
        folder = write_present_outputs(study, load_paper(study.paper), root, args.partial)
    except CellsMissing as error:
        print(error, file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"written to {folder.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
