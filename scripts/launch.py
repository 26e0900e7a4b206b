"""Run one cell: start a training process per GPU, wait for the common end, write its record or the reason for none.

Exit status: 0 with a record (ok, oom, nan, not_available), 1 without, 2 for a mistake in a file or an argument.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contracts.project_files import project_folder
from launcher.cell_launch import Order, run_order
from records.code_digests import code_digests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True, help="name of the file in config/systems/")
    parser.add_argument("--system-file", type=Path, help="that file as it was when the cell was submitted")
    parser.add_argument("--cell", required=True, help="the cell's identity as JSON (cell.schema.yaml)")
    parser.add_argument("--model-name", required=True, help="label of the model's shape")
    parser.add_argument("--repeat", type=int, required=True, help="which repeat, from 1")
    parser.add_argument("--tokens", type=Path, help="JSON beside the token file")
    parser.add_argument("--record", type=Path, required=True, help="where to write the record")
    parser.add_argument("--log", type=Path, required=True, help="where the ranks' output goes")
    parser.add_argument("--time-limit-s", type=float, required=True, help="end the cell after this many seconds")
    parser.add_argument("--silent", action="store_true", help="the caller tells what the record or failure.json says")
    args = parser.parse_args()
    return run_order(Order(**vars(args), root=project_folder(), code_digests=code_digests))


if __name__ == "__main__":
    sys.exit(main())
