"""Timed cells never overlap on a host, whoever starts them: one advisory lock, freed by the kernel with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK_PATH = Path("/tmp/scaling-eval.lock")
# Names another file for calls that must not wait for the user's own cells, such as the tests'.
LOCK_VARIABLE = "SCALING_EVAL_HOST_LOCK"
WHAT_TO_DO = (
    f"without a lock two cells could be timed at once on this host: set {LOCK_VARIABLE} to a file on a local disk, the "
    f"same for every call"
)


@contextlib.contextmanager
def host_lock(
    on_wait: Callable[[str], None], keep_waiting: Callable[[], bool], path: Path | None = None
) -> Iterator[None]:
    """Hold the host's lock; `on_wait` is told once, with the holder, when another cell is being timed.

    path: the lock's file; by default LOCK_PATH, or what LOCK_VARIABLE names. `keep_waiting` is asked between tries;
    InterruptedError when it says no. ValueError where the file system has no locks: without one times would be wrong,
    and nothing would show it.
    """
    path = path or Path(os.environ.get(LOCK_VARIABLE) or LOCK_PATH)
    descriptor = _open(path)
    try:
        told = False
        while not _try(descriptor, path):
            if not told:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                on_wait(f"another cell is being timed on this host ({holder or 'holder unknown'}); waiting for it")
                told = True
            if not keep_waiting():
                raise InterruptedError("stopped while waiting for another timed cell on this host")
            time.sleep(0.2)
        with contextlib.suppress(OSError):  # another user's file: the lock holds, only the note is missing
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} of user {os.getuid()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # Lustre without the mount option flock: ENOSYS; others ENOLCK, EOPNOTSUPP
        raise ValueError(f"{path} cannot be locked ({error.strerror}), and {WHAT_TO_DO}") from None
    return True


def _open(path: Path) -> int:
    """Open without creating first: kernels refuse O_CREAT on another user's file in a sticky folder."""
    for flags in (os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            return os.open(path, flags | os.O_CLOEXEC)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ValueError(f"{path} cannot be opened ({error.strerror}), and {WHAT_TO_DO}") from None
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o666)  # the umask must not keep other users out
    return descriptor
