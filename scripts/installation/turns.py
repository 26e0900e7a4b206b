"""Wait until nobody else makes the same thing: a lock on a file that is open. Called by ./run's setup before `.venv` is
there, so it needs Python alone.

Where the file system has no locks (Lustre without the mount option flock), it only says so: two calls at once are rare,
and a call that is told can be made alone.
"""

from __future__ import annotations

import fcntl
import sys


def wait_for_turn(descriptor: int, lock_file: str, what: str) -> None:
    """Return when this process holds the lock on `lock_file`, open as `descriptor`, or when it cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        print(
            f"{lock_file} cannot be locked ({error.strerror}), so nothing keeps two calls from making {what} at the "
            f"same time: start no second call before {what} is there",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    wait_for_turn(int(sys.argv[1]), *sys.argv[2:4])
