"""The real uv: what it installs from a site's packages, how it shares them on disk, and what is said when it cannot.

The packages are wheels of a file each, made here, in folders that stand for a site's index: nothing needs a network.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from installation.installer import Environment, NotInstalled, install

CONTENT = "x = 1\n" * 2000


def make_wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any") -> Path:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": CONTENT,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},,{len(text)}\n" for path, text in files.items()) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site without a network: pip is told of a folder of packages, and nothing of what this machine has set."""
    if importlib.util.find_spec("uv") is None:
        (pytest.fail if os.environ.get("CI_REQUIRES_ALL") else pytest.skip)("this Python has no uv; ./test installs it")
    for name in os.environ:
        if name.startswith(("PIP_", "UV_", "SCALING_EVAL_INSTALLER")):
            monkeypatch.delenv(name)
    folder = tmp_path / "packages"
    for name, version in (("first", "1.0"), ("second", "1.0")):
        make_wheel(folder, name, version)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def environment(site: Path) -> Iterator[Callable[..., Environment]]:
    with (site / "lock").open("w") as lock:

        def make(name: str, *requirements: str) -> Environment:
            folder = site / name
            # Without pip, which takes seconds to unpack: its settings are read by the one of this Python.
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            packages = next((folder / "lib").glob("python3*")) / "site-packages"
            pip = importlib.util.find_spec("pip")
            assert pip and pip.submodule_search_locations
            (packages / "pip").symlink_to(pip.submodule_search_locations[0])
            (site / f"{name}.txt").write_text("".join(f"{line}\n" for line in requirements))
            return Environment(folder, (f"{name}.txt",), lock.fileno())

        yield make


def module(environment: Environment, name: str) -> Path:
    (path,) = environment.folder.glob(f"lib/python3*/site-packages/{name}.py")
    return path


def test_environments_share_what_they_have_in_common(
    environment: Callable[..., Environment], site: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = environment("one", "first==1.0"), environment("other", "first==1.0", "second==1.0")
    install(one, Path(sys.executable))
    said = capfd.readouterr().err
    assert "1 package, 1 of them to be fetched: 1 kB (first 1 kB)" in said, said
    assert "Installed 1 package in" in said and "+ first" not in said
    assert "one.txt: installed in " in said and "shares" not in said
    install(other, Path(sys.executable))
    said = capfd.readouterr().err
    assert "2 packages, 1 of them to be fetched: 1 kB (second 1 kB)" in said, said
    assert re.search(r"of disk; another \d+ kB it shares with other environments", said), said
    assert module(one, "first").samefile(module(other, "first"))
    assert module(one, "first").stat().st_nlink == 3  # the two, and uv's cache
    install(other, Path(sys.executable))
    assert "all of them in uv's cache or installed: nothing to download" in capfd.readouterr().err


def test_the_best_version_of_all_indexes_is_taken_as_pip_does(
    environment: Callable[..., Environment], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, version in (("main", "2.0"), ("extra", "1.5")):
        make_wheel(site / index / "third", "third", version)
        page = f'<a href="third-{version}-py3-none-any.whl">third-{version}-py3-none-any.whl</a>'
        (site / index / "third/index.html").write_text(f"<html><body>{page}</body></html>")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", (site / "main").as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (site / "extra").as_uri())
    made = environment("made", "third", "first")
    install(made, Path(sys.executable))
    assert list(made.folder.glob("lib/python3*/site-packages/third-2.0.dist-info"))
    assert module(made, "first").is_file()  # from the folder, which counts as well
    monkeypatch.setenv("UV_INDEX_STRATEGY", "first-index")  # what uv does by itself, and whoever sets it gets
    made = environment("again", "third")
    install(made, Path(sys.executable))
    assert list(made.folder.glob("lib/python3*/site-packages/third-1.5.dist-info"))


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("first==2.0", "the package index has no first==2.0"),
        ("nowhere==1.0", "the package index has no nowhere==1.0"),
        ("old==1.0", "the package index has no file of old==1.0 for Python 3."),
        ("elsewhere==1.0", "the package index has no file of elsewhere==1.0 for Python 3."),
    ],
)
def test_what_cannot_be_had_is_named(
    environment: Callable[..., Environment], site: Path, requirement: str, expected: str
) -> None:
    make_wheel(site / "packages", "old", "1.0", "cp27-cp27m-manylinux1_x86_64")
    make_wheel(site / "packages", "elsewhere", "1.0", "py3-none-win32")
    made = environment("made", requirement)
    with pytest.raises(NotInstalled) as failed:
        install(made, Path(sys.executable))
    words = str(failed.value)
    assert words.startswith("made.txt could not be installed: ") and expected in words and "\n" not in words


def test_a_file_that_a_power_cut_left_short_is_fetched_anew(
    environment: Callable[..., Environment], site: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = environment("one", "first==1.0"), environment("other", "first==1.0")
    install(one, Path(sys.executable))
    with module(one, "first").open("r+") as file:
        file.truncate(10)
    capfd.readouterr()
    install(other, Path(sys.executable))
    assert "Not whole in uv's cache, so they are fetched anew: first" in capfd.readouterr().err
    assert module(other, "first").read_text() == CONTENT


def test_a_file_with_what_only_pip_knows_is_left_to_pip(
    environment: Callable[..., Environment], capfd: pytest.CaptureFixture[str]
) -> None:
    made = environment("made", "--prefer-binary", "first==1.0")
    install(made, Path(sys.executable))
    assert "with pip, since uv does not know what these files say: --prefer-binary" in capfd.readouterr().err
    assert module(made, "first").is_file()
    (installer,) = made.folder.glob("lib/python3*/site-packages/first-1.0.dist-info/INSTALLER")
    assert installer.read_text().strip() == "pip"


def test_a_full_disk_is_named(environment: Callable[..., Environment], site: Path) -> None:
    """The disk is a limit on how large a file may grow, which uv meets where it unpacks the package."""
    made = environment("made", "first==1.0")
    program = (
        "import resource, sys; from pathlib import Path; from installation.installer import *\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "lock = open('lock')\n"
        f"install(Environment(Path({str(made.folder)!r}), ('made.txt',), lock.fileno()), Path(sys.executable))\n"
    )
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(scripts)}, capture_output=True, text=True
    )
    assert done.returncode
    assert "the disk is full or a quota is used up" in done.stderr.splitlines()[-1]


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("a file in the folder's place")
    (tmp_path / "nothing.txt").write_text("# nothing\n")
    command = [
        sys.executable,
        str(Path(__file__).resolve().parents[2] / "scripts/make_venv.py"),
        "--requirements",
        "nothing.txt",
    ]
    command += ["--folder", "environments/venv-nothing/0", "--output", "environments/venv-nothing.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("nothing.txt: could not be installed (") and "Traceback" not in done.stderr
