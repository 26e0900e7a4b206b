"""Remove compiled modules that are not whole, as a full disk leaves them (scripts/installation/bytecode.py).

    python scripts/whole_bytecode.py FOLDER...

An import of this module does it for the project's own modules: programs that people call by hand import it first.
"""

import argparse
import runpy
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
# Run as a file: an import would read compiled modules, which may be what is not whole.
remove_damaged = runpy.run_path(str(SCRIPTS / "installation" / "bytecode.py"))["remove_damaged"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="where to look, in all folders below")
    for damaged in remove_damaged(parser.parse_args().folders):
        print(f"{damaged} was cut short, perhaps by a full disk; it is removed, and made anew.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
else:
    remove_damaged([SCRIPTS])
