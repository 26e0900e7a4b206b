"""What ./run and ./test do before anything starts: which Python they take, and what they install.

The Python here is a double: its venv, pip and uv only note that they were called, its Snakemake prints its arguments,
and everything else is done by the real one. tests/unit/test_installer.py has the real uv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from checkout_double import ROOT, UNREACHABLE, Checkout, write_program


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a folder with spaces")


# --- installing


def test_a_first_call_installs_and_a_second_does_not(checkout: Checkout) -> None:
    for _ in range(2):
        done = checkout.run("-n", "demo")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "snakemake: --profile profiles/local -n demo\n"
    assert (checkout.calls("venvs"), checkout.calls("uv-calls")) == (1, 1)
    (checkout.root / "envs/torch.txt").write_text("torch==2.14.0\n")
    assert checkout.run().returncode == 0
    assert (checkout.calls("venvs"), checkout.calls("uv-calls")) == (1, 2)


def test_without_python_named_the_first_on_path_is_taken(checkout: Checkout) -> None:
    done = checkout.run("-n", python=None)
    assert done.returncode == 0, done.stderr
    assert "snakemake: --profile profiles/local -n" in done.stdout
    assert checkout.calls("venvs") == 1


def test_a_failed_installation_is_explained_and_the_next_call_works(checkout: Checkout) -> None:
    """Without a network not even uv can be had, and pip says what it misses."""
    (checkout.root / "pip-says").write_text(UNREACHABLE)
    (checkout.root / "pip-fails").touch()
    done = checkout.run("-n")
    assert done.returncode == 1
    assert not done.stdout
    assert "with pip, since envs/uv.txt could not be installed" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "envs/torch.txt and envs/workflow.txt could not be installed: the package index could not be reached" in last
    assert "torch==2.13.0" in last and "HTTPS_PROXY" in last and "PIP_INDEX_URL" in last and "PIP_FIND_LINKS" in last
    assert UNREACHABLE.splitlines()[-1] in done.stderr  # pip's own words are not hidden
    (checkout.root / "pip-says").unlink()
    (checkout.root / "pip-fails").unlink()
    done = checkout.run("-n")
    assert done.returncode == 0, done.stderr
    assert "snakemake:" in done.stdout
    assert (checkout.calls("venvs"), checkout.calls("pip-calls"), checkout.calls("uv-calls")) == (1, 1, 1)


def test_a_failure_of_uv_is_explained_and_the_next_call_works(checkout: Checkout) -> None:
    (checkout.root / "uv-says").write_text("error: Failed to fetch: x\n  cause: dns error\n")
    (checkout.root / "uv-fails").touch()
    done = checkout.run("-n")
    assert done.returncode == 1 and not done.stdout
    last = done.stderr.splitlines()[-1]
    assert "envs/torch.txt and envs/workflow.txt could not be installed: the package index could not be reached" in last
    assert "cause: dns error" in done.stderr  # uv's own words are not hidden
    assert checkout.calls("pip-calls") == 0
    (checkout.root / "uv-fails").unlink()
    assert checkout.run("-n").returncode == 0
    assert (checkout.calls("venvs"), checkout.calls("uv-calls")) == (1, 2)


def test_pip_installs_where_it_is_asked_for(checkout: Checkout) -> None:
    done = checkout.run("-n", installer="pip")
    assert done.returncode == 0, done.stderr
    assert "into .venv with pip, as SCALING_EVAL_INSTALLER says; it shares nothing" in done.stderr
    assert (checkout.calls("pip-calls"), checkout.calls("uv-calls")) == (1, 0)
    assert not (checkout.root / "has-uv").exists()
    assert "-r envs/torch.txt -r envs/workflow.txt" in (checkout.root / "pip-calls").read_text()


def test_pip_installs_where_its_settings_ask_for_what_uv_cannot_do(checkout: Checkout) -> None:
    (checkout.root / "pip-config").write_text("global.index-url='file:///a'\n:env:.prefer-binary='1'\n")
    done = checkout.run("-n")
    assert done.returncode == 0, done.stderr
    assert "with pip, since uv has no counterpart of these settings of pip: prefer-binary;" in done.stderr
    assert (checkout.calls("pip-calls"), checkout.calls("uv-calls")) == (1, 0)


def test_an_unknown_installer_is_refused(checkout: Checkout) -> None:
    done = checkout.run("-n", installer="conda")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "SCALING_EVAL_INSTALLER=conda: name uv or pip, or leave it out."
    assert (checkout.calls("pip-calls"), checkout.calls("uv-calls")) == (0, 0)


def test_uv_is_told_of_a_sites_index_and_shares_files(checkout: Checkout) -> None:
    (checkout.root / "pip-config").write_text("global.index-url='file:///a'\nglobal.extra-index-url='\\nb\\nc'\n")
    assert checkout.run("-n").returncode == 0
    variables = dict(line.partition("=")[::2] for line in (checkout.root / "uv-variables").read_text().splitlines())
    assert variables["UV_DEFAULT_INDEX"] == "file:///a" and variables["UV_INDEX"] == "b c"
    assert (variables["UV_CACHE_DIR"], variables["UV_LINK_MODE"]) == (f"{checkout.root}/cache", "hardlink")
    assert f"--python {checkout.root}/.venv/bin/python" in (checkout.root / "uv-calls").read_text()


def test_sizes_are_said_before_anything_is_fetched(checkout: Checkout) -> None:
    (checkout.root / "dry-run").write_text(
        "Resolved 2 packages in 1ms\nDEBUG Identified uncached distribution: torch==2.13.0\n"
    )
    (checkout.root / "lock").write_text(
        '[[packages]]\nname = "torch"\nwheels = [{ url = "https://x/torch.whl", size = 526574961 }]\n'
    )
    (checkout.root / "uv-says").write_text("Installed 2 packages in 5ms\n + torch==2.13.0\n")
    done = checkout.run("-n")
    lines = done.stderr.splitlines()
    assert lines[0] == "Installing envs/torch.txt and envs/workflow.txt into .venv with uv 0.0.1 ..."
    assert lines[1].startswith("2 packages, 1 of them to be fetched: 527 MB (torch 527 MB). Unpacked they take more; ")
    assert lines[2] == "Installed 2 packages in 5ms"
    assert lines[3].startswith("envs/torch.txt and envs/workflow.txt: installed in ") and " of disk" in lines[3]
    assert len(lines) == 4


def test_an_installation_that_was_cut_short_is_begun_anew(checkout: Checkout) -> None:
    """Even where an earlier one was complete: uv and pip would take half a package for an installed one."""
    assert checkout.run("-n").returncode == 0
    (checkout.root / ".venv/unfinished").touch()  # as ./test leaves it that was killed
    assert checkout.run("-n").returncode == 0
    assert (checkout.calls("venvs"), checkout.calls("uv-calls")) == (1, 2)
    assert not (checkout.root / ".venv/unfinished").exists()
    (checkout.root / ".venv/unfinished").touch()
    (checkout.root / "damaged").write_text("torch: not finished\nnumpy: not finished\n")
    done = checkout.run("-n")
    assert done.returncode == 0, done.stderr
    assert "cut short, so .venv is made anew (torch: not finished)" in done.stderr
    assert (checkout.calls("venvs"), checkout.calls("uv-calls")) == (2, 3)


def test_no_stamp_is_written_when_uv_fails_behind_an_older_one(checkout: Checkout) -> None:
    assert checkout.run("-n").returncode == 0
    stamp = (checkout.root / ".venv/installed-workflow").read_text()
    (checkout.root / "envs/workflow.txt").write_text("snakemake==10.0\n")
    (checkout.root / "uv-fails").touch()
    assert checkout.run("-n").returncode == 1
    assert (checkout.root / ".venv/installed-workflow").read_text() == stamp


def test_a_python_that_is_gone_is_replaced(checkout: Checkout) -> None:
    assert checkout.run("-n").returncode == 0
    (checkout.root / ".venv/bin/python").unlink()
    (checkout.root / ".venv/bin/python").symlink_to(checkout.root / "no longer there")
    done = checkout.run("-n")
    assert done.returncode == 0, done.stderr
    assert checkout.calls("venvs") == 2


def test_a_moved_checkout_starts(checkout: Checkout) -> None:
    """No script in .venv/bin is called: its first line names the folder that it was made in."""
    assert checkout.run("-n").returncode == 0
    write_program(checkout.root / ".venv/bin/snakemake", f"#!{checkout.root}/.venv/bin/python\n")
    moved = Checkout.__new__(Checkout)
    moved.root, moved.python = checkout.root.rename(checkout.root.with_name("elsewhere")), checkout.python
    done = moved.run("-n")
    assert done.returncode == 0, done.stderr
    assert "snakemake: --profile profiles/local -n" in done.stdout
    assert (moved.calls("venvs"), moved.calls("uv-calls")) == (1, 1)


# --- PYTHON=

OLD = '#!/bin/sh\ncase "$2" in *print*) echo 3.9.18;; *) exit 1;; esac\n'
ANCIENT = '#!/bin/sh\ncase "$2" in *print*) echo 2.7.18;; *) exit 1;; esac\n'
NO_VENV = f'#!/bin/sh\ncase "$2" in *"import venv"*) exit 1;; esac\nexec {sys.executable} "$@"\n'
NO_PYTHON = "#!/bin/sh\necho hello\n"
OTHER = f'#!/bin/sh\ncase "$2" in *base_prefix*) echo /another/python;; *) exec {sys.executable} "$@";; esac\n'


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (None, "there is no such program"),
        (NO_PYTHON, "is no Python that can be started"),
        (OLD, "is Python 3.9.18, and 3.11 or newer is needed"),
        (ANCIENT, "is Python 2.7.18, and 3.11 or newer is needed"),
        (NO_VENV, "has no module venv or ensurepip"),
    ],
)
@pytest.mark.parametrize("installed", [False, True])
def test_a_python_that_cannot_be_used_is_refused(
    checkout: Checkout, program: str | None, message: str, installed: bool
) -> None:
    if installed:
        assert checkout.run("-n").returncode == 0
    named = checkout.root.parent / "named python"
    if program:
        write_program(named, program)
    before = checkout.files()
    done = checkout.run("-n", python=str(named))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"PYTHON={named}") and message in done.stderr
    assert not done.stdout
    assert checkout.files() == before


def test_a_python_other_than_that_of_the_environment_is_refused(checkout: Checkout) -> None:
    assert checkout.run("-n").returncode == 0
    before = checkout.files()
    named = write_program(checkout.root.parent / "other", OTHER)
    done = checkout.run("-n", python=str(named))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "in /another/python, but .venv was made with Python" in done.stderr
    assert "delete the folder .venv" in done.stderr
    assert checkout.files() == before
    assert checkout.run("-n", python=sys.executable).returncode == 0  # the same one, by another name


def test_a_relative_python_starts_where_the_call_does(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write_program(tmp_path / "sub" / "py", checkout.python.read_text())
    done = checkout.run("-n", python="sub/py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert checkout.calls("venvs") == 1
    assert checkout.run("-n", python="", cwd=tmp_path).returncode == 0


def test_both_commands_look_at_python_first() -> None:
    for name in ("run", "test"):
        lines = (ROOT / name).read_text().splitlines()
        assert lines.index("check_python") < next(i for i, line in enumerate(lines) if line.startswith("install_"))
        assert not [line for line in lines if line.startswith(("snakemake", "pytest", "pip", "exec snakemake"))]
