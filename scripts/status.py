"""Show what became of a study's cells, or set records aside so that their cells run again.

    status.py [STUDY ...]           every cell: done, running, failed and why, how long it took
    status.py forget [--status oom,not_available] [--code-changed] [--busy-host] [--cell ID] [--framework NAME] STUDY

Without a study: every one of config/studies/ that can be read. `forget` takes the records that are all that its options
say, and deletes nothing: a record stays beside its cell as record.forgotten-<time>.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.errors import ConfigError
from contracts.project_files import project_folder
from planning.studies import configured_system
from reporting.forgetting import forget_parser, forget_records, wanted_from
from reporting.status_report import show_status


def main() -> int:
    arguments, root = sys.argv[1:], project_folder()
    try:
        if arguments[:1] == ["forget"]:
            args = forget_parser().parse_args(arguments[1:])
            told = forget_records(args.study, args.system or configured_system(root), wanted_from(args), root)
            print("\n".join(told))
        else:
            args = show_parser().parse_args(arguments)
            show_status(args.studies, args.system or configured_system(root), root, args.csv, sys.stdout)
    except BrokenPipeError:  # `| head` has seen enough; what is left is flushed to nowhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def show_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="names of files in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument("--csv", type=Path, help="also write the table to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
