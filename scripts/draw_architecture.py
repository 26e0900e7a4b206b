"""Draw the picture in docs/architecture.md anew, from the imports between the packages of scripts/."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from documentation.blocks import replace_block
from documentation.rooms import arrows, picture

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        replace_block(PAGE, "rooms", f"```mermaid\n{picture(arrows())}```")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
