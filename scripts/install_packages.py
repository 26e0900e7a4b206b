"""Install requirements files into .venv for ./run and ./test, with what envs/uv.txt names or with pip.

Only the standard library is imported here: this runs where nothing is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from installation.installer import Environment, NotInstalled, install
from workloads.child import die_with_parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, required=True, help="a virtual environment with pip in it")
    parser.add_argument("--lock", type=int, required=True, help="the descriptor of a lock on it")
    parser.add_argument("files", nargs="+", metavar="FILE", help="requirements files")
    args = parser.parse_args()
    die_with_parent(os.getppid())
    environment = Environment(args.environment.absolute(), tuple(args.files), args.lock)
    try:
        install(environment, environment.python, Path("envs/uv.txt"))
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
