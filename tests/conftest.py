"""For all tests: Ctrl-C means what it means at a terminal, also where the tests were started in the background."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
