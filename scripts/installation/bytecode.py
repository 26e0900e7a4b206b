"""Remove compiled modules (`__pycache__/*.pyc`) that are not whole.

CPython before 3.12.8 and 3.13.1 takes a short write for a complete one. So a full disk leaves the beginning of a file,
and every later import of that module ends with "marshal data too short", long after there is space again.

Only the standard library is imported here, and nothing of the project, since that may be what cannot be imported.
"""

import importlib.util
import marshal
import sys
import types
from collections.abc import Iterable
from pathlib import Path

_HEADER_BYTES = 16


def remove_damaged(folders: Iterable[Path]) -> list[Path]:
    """Remove this Python's compiled modules below `folders` that cannot be loaded, and return their paths.

    Python compiles them anew at the next import. One that cannot be read or removed is left as it is: Python's own
    message then says more than we could.
    """
    removed = []
    for folder in folders:
        for path in sorted(folder.rglob(f"__pycache__/*.{sys.implementation.cache_tag}*.pyc")):
            try:
                if not _can_be_loaded(path.read_bytes()):
                    path.unlink()
                    removed.append(path)
            except OSError:
                continue
    return removed


def _can_be_loaded(content: bytes) -> bool:
    """Return whether an import would get past this file; a wrong or short header only makes Python compile anew."""
    if len(content) < _HEADER_BYTES or not content.startswith(importlib.util.MAGIC_NUMBER):
        return True
    try:
        return isinstance(marshal.loads(content[_HEADER_BYTES:]), types.CodeType)
    except (EOFError, ValueError, TypeError):
        return False
