"""Stop a program by a signal in an orderly way: what it was writing is removed, and its workers end with it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal asked this program to stop; the argument is its number."""

    @property
    def exit_code(self) -> int:
        """Return what a shell says of a program that a signal has ended."""
        return 128 + int(self.args[0])

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.args[0]).name}; nothing was kept"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first signal to stop into an exception, so that everything is cleaned up; ignore further ones."""

    def stop(number: int, _: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    # A signal that is ignored from the start (nohup, a shell's background job) stays ignored.
    previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
