"""Refuse what no measurement can give: a benchmark that prints nonsense is worse than one that stops."""

from __future__ import annotations

import math


def plausible(what: str, value: float, above: float = 0.0, at_most: float = math.inf) -> float:
    """Return `value` if it is a finite number above `above` and not above `at_most`.

    Raises SystemExit otherwise, with a sentence that names what came out wrong: nothing of the run is to be believed.
    """
    if math.isfinite(value) and above < value <= at_most:
        return value
    bounds = f"above {above:g}" + (f" and at most {at_most:g}" if math.isfinite(at_most) else "")
    raise SystemExit(
        f"{what} came out as {value:g}, and it must be {bounds}: the measurement went wrong, or the run was too short "
        "to tell it from noise. No table is printed"
    )
