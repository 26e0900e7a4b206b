"""Say in uv's settings what is set for pip: uv reads none of pip's, and a site's package index must not be passed by.

What the user has set for uv itself is left as it is. Settings of pip that decide what is installed, or from where, and
that uv has no counterpart for are named as obstacles: then pip does the work.
"""

from __future__ import annotations

import ast
import math
import re
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

# These settings change how pip works, and neither what it installs nor where that comes from.
_HARMLESS = (
    "cache-dir", "compile", "config-file", "debug", "disable-pip-version-check", "exists-action", "log", "log-file",
    "no-cache-dir", "no-clean", "no-color", "no-compile", "no-input", "no-python-version-warning", "no-warn-conflicts",
    "no-warn-script-location", "progress-bar", "quiet", "require-virtualenv", "resume-retries", "root-user-action",
    "upgrade-strategy", "verbose",
)  # fmt: skip
# Switches that uv has no counterpart for are no obstacle where they are off.
_OFF = ("0", "f", "false", "n", "no", "off", "")
_ON = ("1", "t", "true", "y", "yes", "on")
_LINE = re.compile(r"(?P<section>[^.=]+)\.(?P<name>[^=]+)=(?P<value>['\"].*)")
# pip lets a later one of these overrule an earlier one.
_SECTIONS = ("global", "install", ":env:")


@dataclass
class UvSettings:
    """Hold the variables and arguments that give uv the same settings as pip.

    obstacles: the settings of pip that uv has no counterpart for.
    """

    variables: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)


def read_pip_settings(python: Path) -> dict[str, str]:
    """Return what is set for an interpreter's `pip install`, in a file or a variable. Raises OSError, ValueError."""
    listed = subprocess.run([str(python), "-m", "pip", "config", "list"], capture_output=True, text=True)
    if listed.returncode:
        raise ValueError("pip cannot read its own settings")
    return parse_config_list(listed.stdout)


def parse_config_list(text: str) -> dict[str, str]:
    """Return option -> value from the output of `pip config list`."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found and found["section"] in by_section:
            by_section[found["section"]][found["name"]] = str(ast.literal_eval(found["value"]))
    return {name: value for section in _SECTIONS for name, value in by_section[section].items()}


def to_uv(pip: Mapping[str, str], environment: Mapping[str, str]) -> UvSettings:
    """Return uv's settings for pip's, beside those that `environment` has for uv already."""
    uv = UvSettings()

    def set_unless(name: str, value: str, *others: str) -> None:
        if value and not any(environment.get(other) for other in (name, *others)):
            uv.variables[name] = value

    # pip takes the best version over all indexes, and uv the first index that has the package at all: with a site's
    # extra index of a few packages in front, versions would differ.
    set_unless("UV_INDEX_STRATEGY", "unsafe-best-match")
    set_unless("UV_PYTHON_DOWNLOADS", "never")
    # As pip does. Where a site has Python write no bytecode, every rank would compile torch anew: 1.5 s of 3.
    set_unless("UV_COMPILE_BYTECODE", "1")
    without_index = _is_on(pip.get("no-index", ""))
    if without_index:
        uv.arguments.append("--no-index")
    for name, value in pip.items():
        words = value.split()
        match name:
            case "index-url" if not without_index:
                set_unless("UV_DEFAULT_INDEX", value.strip(), "UV_INDEX_URL")
            case "extra-index-url" if not without_index:
                set_unless("UV_INDEX", " ".join(words), "UV_EXTRA_INDEX_URL")
            case "index-url" | "extra-index-url" | "no-index":
                pass
            case "find-links":
                folders = [_expanded(word) for word in words]
                pages = [word for word in folders if (path := _local(word)) and path.is_file()]
                uv.obstacles += ["find-links, which names a file" for _ in pages[:1]]
                # pip passes over a folder that is not there, and uv ends.
                there = [word for word in folders if not (path := _local(word)) or path.is_dir()]
                set_unless("UV_FIND_LINKS", ",".join(there))
            case "constraint":
                set_unless("UV_CONSTRAINT", " ".join(words))
            case "build-constraint":
                set_unless("UV_BUILD_CONSTRAINT", " ".join(words))
            case "trusted-host":
                set_unless("UV_INSECURE_HOST", " ".join(words))
            case "timeout" | "default-timeout":
                set_unless("UV_HTTP_TIMEOUT", _whole_seconds(value, uv, name))
            case "retries":
                set_unless("UV_HTTP_RETRIES", value.strip())
            case "client-cert":
                set_unless("SSL_CLIENT_CERT", value)
            case "cert":
                pass  # _set_certificates
            case "proxy":
                # As with pip it goes before the variables, in either of their spellings.
                address = value if "://" in value or not value else f"http://{value}"
                for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                    uv.variables |= {variable: address, variable.lower(): address} if address else {}
            case "no-binary" | "only-binary":
                for package in _packages(value):
                    uv.arguments += [f"--{name}", package]
            case "pre" if _is_on(value):
                set_unless("UV_PRERELEASE", "allow")
            case "require-hashes" if _is_on(value):
                set_unless("UV_REQUIRE_HASHES", "1")
            case "keyring-provider" if value == "subprocess":
                set_unless("UV_KEYRING_PROVIDER", "subprocess")
            case "keyring-provider" if value in ("auto", "disabled"):
                pass
            case "use-feature" if set(words) <= {"truststore", "fast-deps"}:
                pass
            case _ if name in _HARMLESS or value.strip().lower() in _OFF:
                pass
            case _:
                uv.obstacles.append(name)
    _set_certificates(uv, pip.get("cert", ""), environment)
    return uv


def _set_certificates(uv: UvSettings, cert: str, environment: Mapping[str, str]) -> None:
    """Have uv trust whom pip trusts: the bundle that is set, else the system's, which uv leaves aside by itself."""
    if cert:
        uv.variables["SSL_CERT_DIR" if Path(cert).is_dir() else "SSL_CERT_FILE"] = cert
        return
    if environment.get("SSL_CERT_FILE") or environment.get("SSL_CERT_DIR"):
        return
    bundle = environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    if bundle:
        uv.variables["SSL_CERT_DIR" if Path(bundle).is_dir() else "SSL_CERT_FILE"] = bundle
    elif _system_has_certificates() and not environment.get("UV_SYSTEM_CERTS"):
        uv.variables["UV_SYSTEM_CERTS"] = "1"


def _system_has_certificates() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile) or bool(paths.capath and any(Path(paths.capath).iterdir()))


def _is_on(value: str) -> bool:
    return value.strip().lower() in _ON


def _packages(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    while ":none:" in names:  # it takes back what stands before it
        names = names[names.index(":none:") + 1 :]
    return names


def _expanded(link: str) -> str:
    return str(Path(link).expanduser()) if link.startswith("~") else link


def _local(link: str) -> Path | None:
    """Return the path that a link names, None where it is on a network."""
    parts = urlsplit(link)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if parts.scheme and len(parts.scheme) > 1 else Path(link)


def _whole_seconds(value: str, uv: UvSettings, name: str) -> str:
    try:
        return str(math.ceil(float(value)))
    except ValueError:
        uv.obstacles.append(name)
        return ""
