"""Why a launcher has to stop: a signal, or the process that started it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from contracts.outcomes import EndKind


class StopRequest:
    """Remembers the first of `signals` that comes, and notices when the process that started this one is gone.

    A signal that whoever started this process had it ignore (nohup) stays ignored.
    """

    def __init__(self, signals: Iterable[signal.Signals]) -> None:
        self._parent = os.getppid()
        self._signal: int | None = None
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: object) -> None:
        self._signal = self._signal or number

    def reason(self) -> tuple[str, str] | None:
        """(kind, reason) when this process must stop, else None."""
        if self._signal is not None:
            return EndKind.INTERRUPTED, f"interrupted by {signal.Signals(self._signal).name}"
        if os.getppid() != self._parent:
            return EndKind.INTERRUPTED, "the workflow that started it is gone"
        return None
