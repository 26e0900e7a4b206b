"""A LaTeX for tests: Debian's packages where root may install them, and what a compiled document's log complains of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from debian import install_packages

# About 75 MB to download and 330 MB on disk; half a minute. acmart sets its text in Libertine, which is in
# texlive-fonts-extra (510 MB to download): without it the class says so and takes Computer Modern, which is wider.
PACKAGES = (
    "texlive-latex-recommended",
    "texlive-latex-extra",
    "texlive-fonts-recommended",
    "texlive-publishers",
)
FILES = ("IEEEtran.cls", "acmart.cls", "article.cls", "booktabs.sty", "hyperxmp.sty", "ptmr7t.tfm")
OVERFULL = re.compile(r"Overfull \\[hv]box \(([\d.]+)pt too (?:wide|high)")
COMPLAINT = re.compile(
    r"! |.*Float too large|.*(Reference|Citation|Label|Command|control sequence).*(undefined|multiply)"
)


def install_latex() -> str | None:
    """Install what is missing; the reason why there can be no LaTeX here, or None when there is one."""
    missing = missing_files()
    if not missing:
        return None
    wanted = f"a LaTeX with {', '.join(missing)} (Debian: {' '.join(PACKAGES)})"
    if os.geteuid() != 0:
        return f"these tests need {wanted}, and only root may install it"
    if not shutil.which("apt-get"):
        return f"these tests need {wanted}, and there is no apt-get to install it"
    failure = install_packages(*PACKAGES)
    if failure or missing_files():
        return f"apt-get could not install {wanted}: {failure or 'something is still missing'}"
    return None


def missing_files() -> list[str]:
    if not (shutil.which("pdflatex") and shutil.which("kpsewhich")):
        return ["pdflatex", *FILES]
    return [name for name in FILES if subprocess.run(["kpsewhich", name], capture_output=True).returncode]


def compile_latex(document: str, folder: Path, runs: int = 2) -> str:
    """Compile a document, twice for its references, and return the last run's log."""
    (folder / "document.tex").write_text(document, encoding="ascii")
    for _ in range(runs):
        subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-no-shell-escape", "document"],
            cwd=folder,
            env={**os.environ, "max_print_line": "1000"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
    return (folder / "document.log").read_text(encoding="utf-8", errors="replace")


def complaints(log: str) -> list[str]:
    """Return the lines of a log that tell of errors, of boxes more than 1 pt too large, and of undefined references."""
    found = []
    for line in log.splitlines():
        overfull = OVERFULL.match(line)
        if (overfull and float(overfull[1]) > 1) or COMPLAINT.match(line):
            found.append(line)
    return found
