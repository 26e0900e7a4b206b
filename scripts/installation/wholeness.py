"""Print which packages of the Python that runs this are not whole, and exit with 1 where there are any.

pip and uv note every file of a package, with its size, in its RECORD, and write that last. An installation that
was killed, or that met a full disk, leaves a package without a RECORD, or with files that are missing or too short, and
pip itself takes such a package for installed. Only the standard library is imported here.
"""

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path


def damaged_packages(folders: Sequence[str]) -> list[str]:
    """Return a line for each package installed in `folders` (as sys.path has them) that is not what its RECORD says."""
    found = []
    for package in importlib.metadata.distributions(path=list(folders)):
        reason = _damage(package)
        if reason:
            found.append(f"{package.metadata['Name'] or 'a package without a name'}: {reason}")
    return sorted(found)


def _damage(package: importlib.metadata.Distribution) -> str | None:
    if package.files is None:
        return "its installation was not finished"
    for file in package.files:
        if file.size is None:  # compiled modules, and RECORD itself
            continue
        try:
            size_bytes = Path(package.locate_file(file)).stat().st_size
        except OSError as error:
            return f"{file}: {error.strerror}"
        if size_bytes < file.size:
            return f"{file} has {size_bytes} bytes of {file.size}"
    return None


if __name__ == "__main__":
    damaged = damaged_packages(sys.path)
    for line in damaged:
        print(line)
    sys.exit(1 if damaged else 0)
