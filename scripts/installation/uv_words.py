"""Say in a few sentences why uv could not install something and what to do, from what uv printed."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

from installation.pip_words import DISK_FULL_WORDS, OFFLINE, REACH_INDEX, failure_words

_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_NO_PERMISSION = re.compile(r"Permission denied|Read-only file system")
_CERTIFICATE = re.compile(r"invalid peer certificate|UnknownIssuer|certificate verify failed")
_PROXY = re.compile(r"tunnel error|proxy authentication required", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"error sending request|Failed to fetch:|Request failed after|HTTP status server error|dns error|timed? ?out|"
    r"connection (?:reset|closed)|error decoding response body",
    re.IGNORECASE,
)
_OFFLINE = re.compile(r"because the network was disabled")
_NO_VERSION = re.compile(r"there (?:is|are) no versions? of ([^\s,]+)|only ([^\s,]+)(?:[<>=!~][^\s]*)? is available")
_NOT_FOUND = re.compile(r"(\S+) was not found in the (?:package registry|provided package locations|cache)")
_NO_WHEEL = re.compile(r"(\S+) has no (?:usable wheels|wheels with a matching [^,]*?)(?= and |,|$)")
_WANTED = re.compile(r"you require ([^\s,]+)")
_NOT_BUILT = re.compile(r"Failed to build:? `?([^`\s]+)`?|The build backend returned an error")
_BY_PIP = "or have plain pip do it: SCALING_EVAL_INSTALLER=pip"
# A setting or a line of a requirements file that pip knows and uv does not.
_UNSUPPORTED = re.compile(r"Ignoring unsupported option in `[^`]*`: `([^`]+)`|Expected `--hash`, found `\"?(--[\w-]+)")


def unsupported_options(output: str) -> list[str]:
    """Return the options of pip in requirements files that uv does not know, from what it printed."""
    return [first or second for first, second in dict.fromkeys(_UNSUPPORTED.findall(output))]


def uv_failure_words(output: str, files: Sequence[str]) -> str:
    """Return what could not be installed, the reason as far as uv's output tells it, and what to do: one line."""
    return failure_words(_reason(output), files)


def _reason(output: str) -> str:
    if _DISK_FULL.search(output):
        return DISK_FULL_WORDS
    if _NO_PERMISSION.search(output):
        return "a file or folder may not be written (uv's output above names it). Mend its permissions."
    if _OFFLINE.search(output):
        return f"{_missing(output)} is not in uv's cache, and uv is kept from the network (UV_OFFLINE). {REACH_INDEX}"
    if _CERTIFICATE.search(output):
        return (
            "the certificate of the package index could not be verified (SSL_CERT_FILE or PIP_CERT names another "
            f"bundle). {REACH_INDEX}"
        )
    if _PROXY.search(output):
        return f"the proxy to the package index did not let uv through (see HTTPS_PROXY). {REACH_INDEX}"
    if built := _NOT_BUILT.search(output):
        return (
            f"{built[1] or 'a package'} had to be built from its source and could not be; uv's output above says what "
            f"it lacked. Install that, use a Python for which there are wheels (PYTHON=...), {_BY_PIP}."
        )
    if _UNREACHABLE.search(output):
        return f"the package index could not be reached. {REACH_INDEX}"
    if "No solution found" in output:
        return _unsolved(output)
    return f"uv's own words stand above. Mend what they name, {_BY_PIP}."


def _unsolved(output: str) -> str:
    """Say why no versions fit together; uv breaks its sentences into lines."""
    text = " ".join(output.split())
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if found := _NO_WHEEL.search(text):
        return (
            f"the package index has no file of {found[1]} for {here}. Use another Python (PYTHON=...), another package "
            f"index (PIP_INDEX_URL), {_BY_PIP}."
        )
    if found := _NO_VERSION.search(text):
        return f"the package index has no {found[1] or _missing(text)}. Use another one (PIP_INDEX_URL); {OFFLINE}."
    if found := _NOT_FOUND.search(text):
        return f"the package index has no {_missing(text, found[1])}, or asks for a name and password. {REACH_INDEX}"
    return (
        "uv found no versions that fit together, which with these pinned files means that the package index lacks one "
        f"of them (uv's output above names them). Use another package index (PIP_INDEX_URL), {_BY_PIP}."
    )


def _missing(output: str, otherwise: str = "a package") -> str:
    wanted = _WANTED.findall(" ".join(output.split()))
    return wanted[0] if wanted else otherwise
