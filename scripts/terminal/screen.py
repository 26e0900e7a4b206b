"""Whole lines on the terminal, and below them one that says what runs now and is written over."""

from __future__ import annotations

import os
from typing import TextIO

CLEAR = "\r\x1b[K"


class Screen:
    """Where there is no terminal (a file, a CI's log) only whole lines are written, and no control characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._has_status = False
        isatty = getattr(stream, "isatty", None)
        self.is_terminal = bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """The terminal's columns; None where there is no terminal, or it does not say."""
        if not self.is_terminal:
            return None
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or None
        except (OSError, ValueError):
            return None

    def write(self, lines: list[str]) -> None:
        if lines:
            self.clear()
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def show_status(self, text: str) -> None:
        """Write over the last status. It must not be longer than a line of the terminal, which cannot be taken back."""
        if self.is_terminal and (text or self._has_status):
            self.clear()
            # Back at its beginning, so that what a job prints itself comes over it and not behind it.
            self._stream.write(text[: (self.width or 80) - 1] + "\r")
            self._stream.flush()
            self._has_status = bool(text)

    def clear(self) -> None:
        if self._has_status:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._has_status = False
