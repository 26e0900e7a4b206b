"""Is every version of an environment pinned? One that is not would average two versions as one cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from contracts.errors import ConfigError, shown_value

# Options of pip that do not decide which version of a named package is installed.
_OPTIONS = (
    "-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--no-binary", "--only-binary",
    "--prefer-binary", "--require-hashes", "--trusted-host",
)  # fmt: skip
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(.+)")
_COMMENT = re.compile(r"(^|\s)#.*")
# What a line may say after its requirement: hashes of what is downloaded, settings of a build.
_LINE_OPTIONS = re.compile(r"\s--(hash|config-settings?|global-option|install-option)[=\s].*")
_COMMIT = re.compile(r"@[0-9a-fA-F]{40}(#|$)")
_HASH = re.compile(r"#(.*&)?sha(256|384|512)=[0-9a-fA-F]{64,}")


def check_pinned(path: Path, root: Path) -> None:
    """Raise ConfigError, with file and line, where a requirements file or one that it includes leaves a version open.

    A version is pinned by `==` without a wildcard, by `===`, or by an address with a whole commit or a SHA-256.
    """
    _check_file(path, root, ())


def _check_file(path: Path, root: Path, including: tuple[Path, ...]) -> None:
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else f"envs/{path.name}"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: byte {error.start + 1} is no UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    for number, line in _logical_lines(text):
        where = f"{shown}: line {number}"
        included = _INCLUDE.fullmatch(line)
        if not included:
            _check_line(where, line)
            continue
        other = path.parent / included[1]
        if other.resolve() in {one.resolve() for one in (*including, path)}:
            raise ConfigError(f"{where}: {shown_value(line)} includes a file in itself; remove the line")
        _check_file(other, root, (*including, path))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield what pip acts on with the number of its first line, without comments; a backslash goes on in the next."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if pending else number
        if line.endswith("\\") and not _COMMENT.search(line):
            pending += f"{line[:-1]} "
            continue
        whole = _COMMENT.sub("", pending + line).strip()
        pending = ""
        if whole:
            yield first, whole
    if pending.strip():
        yield first, pending.strip()


def _check_line(where: str, line: str) -> None:
    if line.startswith("-"):
        _check_option(where, line)
        return
    # Not at the top: only the workflow's own Python has to have it, and adaptors are loaded under others.
    from packaging.requirements import InvalidRequirement, Requirement

    text = _LINE_OPTIONS.sub("", line)
    if "${" in text:
        raise ConfigError(f"{where}: {shown_value(line)} depends on a variable of the environment; write the value out")
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise ConfigError(
            f"{where}: {shown_value(line)} names no package and version; write `name==1.2.3`, or "
            f"`name @ address` with a whole commit or #sha256=..."
        ) from None
    if requirement.url:
        if not (_COMMIT.search(requirement.url) or _HASH.search(requirement.url)):
            raise ConfigError(
                f"{where}: {shown_value(line)} may be other code tomorrow; end the address with @ and all 40 digits of "
                f"a commit, or with #sha256= and the file's hash"
            )
        return
    exact = [s for s in requirement.specifier if s.operator == "===" or (s.operator == "==" and "*" not in s.version)]
    if not exact:
        raise ConfigError(
            f"{where}: {shown_value(line)} leaves the version open, so that cells of two versions would be averaged as "
            f"one; pin it, as in `{requirement.name}==1.2.3`"
        )


def _check_option(where: str, line: str) -> None:
    name = re.split(r"[\s=]", line, maxsplit=1)[0]
    short = name[:2] if not name.startswith("--") else name
    if short in ("-e", "--editable"):
        raise ConfigError(
            f"{where}: {shown_value(line)} installs whatever lies there; write `name @ address` with a whole commit, "
            f"or `name==1.2.3`"
        )
    if short in ("-c", "--constraint"):
        raise ConfigError(
            f"{where}: {shown_value(line)}: a file of constraints is no part of a cell's identity; write its lines "
            f"here, or include it with -r"
        )
    if short not in _OPTIONS:
        raise ConfigError(
            f"{where}: {shown_value(line)} can change which versions are installed; remove it (options that are read "
            f"here: -r, {', '.join(_OPTIONS)})"
        )
