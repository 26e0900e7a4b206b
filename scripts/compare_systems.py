"""Put one study's measurements on two or more systems side by side: results/comparisons/<study>/<a>+<b>.csv, .md, .tex.

    compare_systems.py demo local cluster

Only results/<system>/<study>/measurements.csv is read; nothing is measured. The ratios are to the first system named.
"""

from __future__ import annotations

import argparse
import sys

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.project_files import project_folder
from reporting.systems_files import write_comparison


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", metavar="STUDY", help="name of the file in config/studies/")
    parser.add_argument("first", metavar="SYSTEM", help="name of a folder in results/; ratios are to this system")
    parser.add_argument("others", metavar="OTHER", nargs="+", help="further systems")
    args = parser.parse_args()
    root = project_folder()
    try:
        paths = write_comparison(args.study, [args.first, *args.others], root)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for path in paths:
        print(f"written: {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
