"""Write a file so that nobody ever sees it half written.

A file under its final name is complete: the bytes go to a temporary name in the same folder, are forced to the disk,
and only then take the final name. Whatever ends the writer before that (an exception, Ctrl-C) removes the temporary
file; SIGKILL or a power cut may leave one behind, recognisable by its name (`.<name>.<random>.tmp`) and never taken
for a result.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

TEMPORARY_SUFFIX = ".tmp"
MODES = ("w", "wb")


@contextlib.contextmanager
def replace_when_complete(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that takes the name `path` only when the `with` block ends without an exception.

    `mode` is "w" (UTF-8 text, line ends written as given) or "wb". Missing parent folders are made. An existing file
    at `path` stays untouched until the moment it is replaced: readers see the old content or the new, never a mix.
    Any exception, KeyboardInterrupt included, removes the temporary file and goes on to the caller.

    Raises ValueError for another mode, OSError where the file system refuses (no space left, no permission).
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}: replace_when_complete writes whole files, so use one of {MODES}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The name is chosen before the file exists, so that an interrupt at any moment from here on knows what to remove.
    # A plain open() and not tempfile: its files are 0600, which would hide results from the user's group.
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}")
    try:
        with _create(temporary, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write `data` as indented UTF-8 JSON with a final newline, complete or not at all.

    Keys keep their order. Raises ValueError for NaN and infinities (they are not JSON: other readers refuse them) and
    TypeError for objects JSON cannot hold; in both cases nothing is written.
    """
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with replace_when_complete(path, "w") as file:
        file.write(text)


def _create(path: Path, mode: str) -> IO[Any]:
    exclusive = mode.replace("w", "x")
    if "b" in mode:
        return path.open(exclusive)
    return path.open(exclusive, encoding="utf-8", newline="")


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the file system allows a folder to be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
