"""As a script, under a framework's own Python: hold the engine of each named adaptor to the contract, on one rank.

Prints one line of JSON, adaptor -> what it does otherwise than `contracts/adaptor.py` says (empty where all is well).
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
SCRIPTS = TESTS.parent / "scripts"
SETTING_TYPES = (str, int, float, bool, type(None))  # what the record's schema takes


def faults(name: str, cell: Any) -> list[str]:
    """What is wrong with an adaptor's engine, in words."""
    from contracts.adaptor import REPORTED, Job
    from planning.adaptors import load_adaptor

    engine = load_adaptor(name).create_engine(Job(cell, 0, 1, 0))
    found: list[str] = []

    def expect(holds: bool, what: str) -> None:
        if not holds:
            found.append(what)

    expect((engine.data_rank, engine.data_size) == (0, 1), "one rank reads share 0 of 1")
    expect(isinstance(engine.device_name, str) and engine.device_name != "", "device_name is a name")
    expect(engine.initial_weights in ("shared", "native"), "initial_weights is shared or native")
    for key, value in engine.settings.items():
        expect(isinstance(value, SETTING_TYPES), f"settings: {key} is no text, number or truth value")
    tokens = np.random.RandomState(1).randint(0, cell.model.vocab_size, (cell.global_batch_size, 33)).astype(np.int64)
    engine.barrier()
    losses = []
    for index in range(3):
        if index == 1:
            engine.reset_peak_memory()
        loss = engine.step(engine.load(tokens))
        engine.wait()
        losses.append(engine.read_loss(loss))
    expect(all(isinstance(loss, float) and math.isfinite(loss) for loss in losses), f"losses are numbers: {losses}")
    expect(losses[2] < losses[0], f"the same batch three times is learned: {losses}")
    peak = engine.peak_memory_bytes()
    expect(peak is None or (isinstance(peak, int) and peak > 0), "peak_memory_bytes is a number of bytes, or None")
    seconds = engine.matmul_seconds(64, 2)
    expect(len(seconds) == 2 and all(second > 0 for second in seconds), "matmul_seconds gives each product's seconds")
    expect(set(engine.reported_by_framework()) <= set(REPORTED), f"reports by a name of {REPORTED}")
    engine.close()
    return found


def main() -> None:
    sys.path[:0] = [str(SCRIPTS), str(TESTS / "data")]
    from workloads.rendezvous import meeting_variables
    from workloads.training.training_cell import cell_from_identity

    identities = json.loads(sys.argv[1])
    answers = {}
    for name, identity in identities.items():
        meeting = Path(sys.argv[2]) / name
        meeting.mkdir()
        os.environ |= meeting_variables(meeting, "127.0.0.1", name)
        answers[name] = faults(name, cell_from_identity(identity))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
