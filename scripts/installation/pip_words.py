"""Say in a few sentences why pip could not install something and what to do, from what pip printed.

Only the standard library is imported here: this runs where nothing is installed.
"""

import platform
import re
from collections.abc import Sequence

# pip says nothing of an index that it could not reach but that it tried again; the last try has this number.
_GAVE_UP = re.compile(
    r"Retrying \(Retry\(total=0\b|Max retries exceeded|Could not fetch URL|"
    r"^pip\._vendor\S*(?:ReadTimeoutError|ConnectionError|ProtocolError|IncompleteRead)",
    re.MULTILINE,
)
_CERTIFICATE = re.compile(r"SSLError|CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError")
_PROXY = re.compile(r"ProxyError|Cannot connect to proxy|Tunnel connection failed")
_NOT_SECURE = re.compile(r"is not a trusted or secure host and is being ignored")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_NOT_FOUND = re.compile(r"No matching distribution found for ([^\s;]+)")
_VERSIONS = re.compile(r"satisfies the requirement ([^\s;]+)[^\n]*\(from versions: ([^)\n]*)\)")
_NOT_BUILT = re.compile(
    r"Failed building wheel for (\S+)|Failed to build (?:installable wheels for [^(\n]*\()?([^\s)]+)|"
    r"(metadata-generation-failed)|(subprocess-exited-with-error)"
)
_CONFLICT = re.compile(r"Cannot install (.+?) because these package versions have conflicting|ResolutionImpossible")
_NO_PERMISSION = re.compile(r"\[Errno 13\]|Permission denied")
OFFLINE = (
    "without any network, put the wheels of everything in the requirements files into a folder (pip download, on a "
    "machine that has a network) and set PIP_NO_INDEX=1 and PIP_FIND_LINKS to that folder"
)
REACH_INDEX = (
    "Check the network; behind a proxy set HTTPS_PROXY; where another package index is to be used set PIP_INDEX_URL, "
    f"or index-url in pip's configuration; {OFFLINE}."
)
DISK_FULL_WORDS = "the disk is full or a quota is used up (the installer's own words stand above). Free several GB."
_AGAIN = "Then call the same command again: what is installed already stays."


def pip_failure_words(output: str, files: Sequence[str]) -> str:
    """Return what could not be installed, the reason as far as pip's output tells it, and what to do: one line."""
    return failure_words(_reason(output), files)


def failure_words(reason: str, files: Sequence[str]) -> str:
    """Return a whole message for a reason that ends with what to do."""
    return f"{' and '.join(files)} could not be installed: {reason} {_AGAIN}"


def tells_of_pip(output: str) -> bool:
    """Return whether a step's output, which may be a compiler's, holds a failure of pip to find something."""
    return bool(_NOT_FOUND.search(output) or _unreachable(output) or _CONFLICT.search(output))


def _reason(output: str) -> str:
    if _DISK_FULL.search(output):
        return DISK_FULL_WORDS
    missing = _missing(output)
    unreachable = _unreachable(output)
    if unreachable:
        return f"{unreachable}, so {missing or 'what is missing'} could not be had. {REACH_INDEX}"
    if _NOT_FOUND.search(output):
        return _not_in_the_index(output)
    if built := _NOT_BUILT.search(output):
        name = built[1] or built[2] or "a package"
        return (
            f"{name} had to be built from its source and could not be; pip's output above says what it lacked. Install "
            "that, or use a Python for which there are wheels (PYTHON=...)."
        )
    if conflict := _CONFLICT.search(output):
        return (
            f"pip found no versions of what {conflict[1] or 'one of them'} needs that fit together, which with these "
            "pinned files means that the package index lacks one of them (pip's output above names them) or was only "
            f"partly reached. {REACH_INDEX}"
        )
    if _NO_PERMISSION.search(output):
        return "a file or folder may not be written (pip's output above names it). Mend its permissions."
    return f"pip's own words stand above. If it is the network: {REACH_INDEX[0].lower()}{REACH_INDEX[1:]}"


def _unreachable(output: str) -> str | None:
    if _NOT_SECURE.search(output):
        return "pip ignores a package index without https that is not among its trusted hosts"
    if not _GAVE_UP.search(output):
        return None
    if _CERTIFICATE.search(output):
        return "the certificate of the package index could not be verified (PIP_CERT names another bundle)"
    if _PROXY.search(output):
        return "the proxy to the package index did not let pip through (see HTTPS_PROXY)"
    return "the package index could not be reached"


def _missing(output: str) -> str:
    names = [*_NOT_FOUND.findall(output), *filter(None, _CONFLICT.findall(output))]
    return ", ".join(dict.fromkeys(names))


def _not_in_the_index(output: str) -> str:
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = {name: found for name, found in _VERSIONS.findall(output) if found.strip() not in ("", "none")}
    names = list(dict.fromkeys(_NOT_FOUND.findall(output)))
    words = "; ".join(
        f"the package index has no {name} for {here}{f' (it has {_last(versions[name])})' if name in versions else ''}"
        for name in names
    )
    if all(name in versions for name in names):
        return f"{words}. Use another Python (PYTHON=...), or another package index (PIP_INDEX_URL)."
    return f"{words}, or it could not be reached. {REACH_INDEX}"


def _last(versions: str) -> str:
    """Return the newest few of a list that pip prints in ascending order."""
    names = [name.strip() for name in versions.split(",")]
    return f"{'..., ' if len(names) > 3 else ''}{', '.join(names[-3:])}"
