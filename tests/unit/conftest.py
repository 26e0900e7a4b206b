"""For unit tests that train small models in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from threads, and lose much to them where other processes use the cores."""
    import torch  # here: most unit tests do without it, and importing it takes seconds

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
