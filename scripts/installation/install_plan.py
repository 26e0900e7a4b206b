"""Say before an installation by uv what it will fetch, from what uv and the package index know."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# With --verbose a dry run names what it does not find in its cache; the version of uv is pinned (envs/uv.txt).
_TO_FETCH = re.compile(r"Identified uncached distribution: ([\w.-]+)")
_RESOLVED = re.compile(r"^(?:Resolved|Checked) (\d+) package", re.MULTILINE)
_LARGEST = 3


@dataclass(frozen=True)
class Plan:
    """What is to be fetched: package -> size of its file (None: not known) of what is not in uv's cache yet."""

    num_packages: int  # of all that the requirements files ask for
    to_fetch_bytes: Mapping[str, int | None]

    @property
    def known_bytes(self) -> int:
        return sum(size for size in self.to_fetch_bytes.values() if size)


def tells_of_fetching(dry_run: str) -> bool:
    """Return whether anything is missing from uv's cache."""
    return bool(_TO_FETCH.search(dry_run))


def make_plan(lock: str, dry_run: str) -> Plan:
    """Make a plan from a resolution (`uv pip compile --format pylock.toml`) and the output of a verbose dry run."""
    sizes = {package["name"]: _size_bytes(package) for package in tomllib.loads(lock).get("packages", ())}
    to_fetch = dict.fromkeys(_TO_FETCH.findall(dry_run))
    found = _RESOLVED.search(dry_run)
    return Plan(int(found[1]) if found else len(sizes), {name: sizes.get(name) for name in to_fetch})


def _size_bytes(package: Mapping[str, object]) -> int | None:
    """Return the size of the file that a package comes in; of wheels only the one that fits this Python is listed."""
    files = package.get("wheels") or [package.get("sdist") or package.get("archive") or {}]
    file = files[0]  # type: ignore[index]
    if "size" in file:
        return int(file["size"])
    address = urlsplit(str(file.get("url", "")))
    path = Path(unquote(address.path) if address.scheme == "file" else str(file.get("path", "")))
    return path.stat().st_size if path.is_file() else None


def plan_words(plan: Plan, free_bytes: int) -> str:
    """Return the plan as a sentence or two."""
    count = f"{plan.num_packages} package{'s' * (plan.num_packages != 1)}"
    fetched = plan.to_fetch_bytes
    if not fetched:
        return f"{count}, all of them in uv's cache or installed: nothing to download."
    unknown = sum(size is None for size in fetched.values())
    known = {name: size for name, size in fetched.items() if size}
    largest = sorted(known.items(), key=lambda item: -item[1])[:_LARGEST]
    named = ", ".join(f"{name} {size_words(size)}" for name, size in largest)
    sizes = [size_words(plan.known_bytes)] if known else []
    size = " and ".join([*sizes, *([f"{unknown} of unknown size"] if unknown else [])])
    words = f"{count}, {len(fetched)} of them to be fetched: {size}{f' ({named})' if named else ''}."
    space = f" Unpacked they take more; {size_words(free_bytes)} of disk are free."
    if free_bytes < plan.known_bytes:
        space = f" Only {size_words(free_bytes)} of disk are free, which will not do."
    return words + space


def size_words(size_bytes: int) -> str:
    """Return a size with two digits or more, in the unit that fits."""
    for unit, bytes_per_unit in (("GB", 10**9), ("MB", 10**6)):
        if size_bytes >= bytes_per_unit:
            value = size_bytes / bytes_per_unit
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{size_bytes / 1000:.0f} kB"


def progress_words(plan: Plan, printed: str) -> str:
    """Return how much of a plan uv has fetched, from what it printed where it has no terminal."""
    # Of small packages it tells nothing: they are done by the time the first large one is.
    begun = re.findall(r"^Downloading (\S+)", printed, re.MULTILINE)
    done = re.findall(r"^ Downloaded (\S+)", printed, re.MULTILINE)
    under_way = [name for name in begun if name not in done]
    if not under_way:
        return ""
    fetched = sum(plan.to_fetch_bytes.get(name) or 0 for name in done)
    named = ", ".join(
        f"{name} ({size_words(size)})" if (size := plan.to_fetch_bytes.get(name)) else name for name in under_way
    )
    return f"{size_words(fetched)} of {size_words(plan.known_bytes)} fetched, under way: {named}"


def names_of(files: Sequence[str | Path]) -> str:
    return " and ".join(map(str, files))
