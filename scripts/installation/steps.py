"""Run a step of an installation: pass on and keep what it prints, and say from time to time that it is at work."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence

from workloads.child import die_with_parent

SILENCE_S = 30.0  # without a terminal, after which a line says that the step goes on
_MAY_BE_HIDDEN = re.compile(r"(?:\x1b\[[0-9;]*m)*(?: |$)")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def run_step(
    command: Sequence[str],
    lock: int,
    variables: Mapping[str, str],
    still_words: Callable[[str, float], str],
    hidden: re.Pattern[str] | None = None,
    silence_s: float = SILENCE_S,
) -> tuple[int, str]:
    """Run a step that dies with this process, and return its exit code and its output without control characters.

    lock: the descriptor of a lock. What the step starts outlives it when it is killed, and may still write into the
    folder; it inherits the lock, so that a successor waits for it.
    still_words: a line for a step that has long printed nothing, from its output and its seconds.
    hidden: lines that begin with a space and are kept, but not passed on.

    Where stderr is a terminal the step has one too, and draws its own progress; elsewhere all comes as lines.
    """
    terminal = sys.stderr.isatty()
    source, sink = _terminal_like_ours() if terminal else os.pipe()
    parent = os.getpid()
    started_s = time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    printed = pending = ""
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, source)
        try:
            step = subprocess.Popen(
                list(command),
                stdout=sink,
                stderr=sink,
                env=os.environ | dict(variables),
                pass_fds=(lock,),
                preexec_fn=lambda: die_with_parent(parent),
            )
        finally:
            os.close(sink)
        stack.enter_context(step)
        while True:
            if not terminal and not select.select([source], [], [], silence_s)[0]:
                _show(f"{still_words(printed, time.monotonic() - started_s)}\n")
                continue
            data = _read(source)
            if not data:
                break
            text = decoder.decode(data)
            printed += _ESCAPES.sub("", text)
            if not hidden:
                _show(text)
                continue
            # A line comes in pieces: what may become a hidden one waits for its end.
            lines, newline, rest = (pending + text).rpartition("\n")
            waits = _MAY_BE_HIDDEN.match(rest)
            _show(hidden.sub("", lines + newline) + ("" if waits else rest))
            pending = rest if waits else ""
        _show(pending)
        return step.wait(), printed


def _terminal_like_ours() -> tuple[int, int]:
    source, sink = pty.openpty()
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetwinsize(sink, termios.tcgetwinsize(sys.stderr.fileno()))
    return source, sink


def _read(source: int) -> bytes:
    try:
        return os.read(source, 65536)
    except OSError:  # how a terminal's other end says that it was closed
        return b""


def _show(text: str) -> None:
    # Where progress belongs: Snakemake shows it and the rule keeps it.
    print(text, end="", file=sys.stderr, flush=True)
