"""What is set for pip, said in uv's settings, and what uv and a terminal say, said in ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from installation.install_plan import make_plan, plan_words, progress_words, size_words
from installation.pip_settings import parse_config_list, read_pip_settings, to_uv
from installation.sharing import can_link, choose_sharing, disk_use
from installation.steps import run_step
from installation.uv_words import unsupported_options, uv_failure_words

ALWAYS = ("UV_COMPILE_BYTECODE", "UV_INDEX_STRATEGY", "UV_PYTHON_DOWNLOADS", "UV_SYSTEM_CERTS")


def test_files_and_variables_are_read_as_pip_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip itself: the section of the command overrules the general one, and a variable both."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a/simple\ntimeout = 10\nextra-index-url =\n    https://b/it's\n    https://c\n"
        "[install]\ntimeout = 20\nno-binary = x,y\n[download]\nretries = 7\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_INDEX_URL", "https://d/simple")
    settings = read_pip_settings(Path(sys.executable))
    assert settings["index-url"] == "https://d/simple"
    assert settings["extra-index-url"].split() == ["https://b/it's", "https://c"]
    assert (settings["timeout"], settings["no-binary"]) == ("20", "x,y")
    assert "retries" not in settings
    file.write_text("no section\n")
    with pytest.raises(ValueError, match="pip cannot read its own settings"):
        read_pip_settings(Path(sys.executable))


def test_only_settings_of_an_installation_count() -> None:
    listed = "global.a='1'\ninstall.b=\"it's\"\nwheel.c='3'\n:env:.a='2'\nsite.d='4'\nnoise\n"
    assert parse_config_list(listed) == {"a": "2", "b": "it's"}


@pytest.mark.parametrize(
    ("pip", "variables", "arguments"),
    [
        ({"index-url": "https://a/simple"}, {"UV_DEFAULT_INDEX": "https://a/simple"}, []),
        ({"extra-index-url": "\nhttps://a\nfile:///b"}, {"UV_INDEX": "https://a file:///b"}, []),
        ({"find-links": "https://a/l /"}, {"UV_FIND_LINKS": "https://a/l,/"}, []),
        ({"find-links": "/not/there file:///not/there"}, {}, []),  # pip passes over them
        ({"no-index": "true", "index-url": "https://a", "find-links": "/"}, {"UV_FIND_LINKS": "/"}, ["--no-index"]),
        ({"no-index": "0", "index-url": "https://a"}, {"UV_DEFAULT_INDEX": "https://a"}, []),
        ({"trusted-host": "a b:8080"}, {"UV_INSECURE_HOST": "a b:8080"}, []),
        ({"constraint": "/c.txt /d.txt"}, {"UV_CONSTRAINT": "/c.txt /d.txt"}, []),
        ({"timeout": "12.5"}, {"UV_HTTP_TIMEOUT": "13"}, []),
        ({"default-timeout": "180", "retries": "2"}, {"UV_HTTP_TIMEOUT": "180", "UV_HTTP_RETRIES": "2"}, []),
        ({"cert": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}, []),
        ({"client-cert": "/me.pem"}, {"SSL_CLIENT_CERT": "/me.pem"}, []),
        ({"only-binary": ":all:,:none:,a,b"}, {}, ["--only-binary", "a", "--only-binary", "b"]),
        ({"no-binary": ":all:"}, {}, ["--no-binary", ":all:"]),
        ({"pre": "yes"}, {"UV_PRERELEASE": "allow"}, []),
        ({"keyring-provider": "subprocess"}, {"UV_KEYRING_PROVIDER": "subprocess"}, []),
        ({"no-cache-dir": "true", "progress-bar": "off", "prefer-binary": "false"}, {}, []),
    ],
)
def test_pips_settings_in_uvs(pip: dict[str, str], variables: dict[str, str], arguments: list[str]) -> None:
    uv = to_uv(pip, {})
    assert uv.variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert {name: value for name, value in uv.variables.items() if name not in ALWAYS} == variables
    assert (uv.arguments, uv.obstacles) == (arguments, [])


def test_pips_proxy_goes_before_the_variables() -> None:
    uv = to_uv({"proxy": "proxy.site:3128"}, {"https_proxy": "http://other"})
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        assert uv.variables[name] == "http://proxy.site:3128"


@pytest.mark.parametrize(
    ("pip", "obstacle"),
    [
        ({"prefer-binary": "1"}, "prefer-binary"),
        ({"target": "/somewhere"}, "target"),
        ({"use-deprecated": "legacy-certs"}, "use-deprecated"),
        ({"use-feature": "truststore of-tomorrow"}, "use-feature"),
        ({"keyring-provider": "import"}, "keyring-provider"),
        ({"timeout": "soon"}, "timeout"),
        ({"find-links": __file__}, "find-links, which names a file"),
    ],
)
def test_what_uv_has_no_counterpart_for_is_an_obstacle(pip: dict[str, str], obstacle: str) -> None:
    assert to_uv(pip, {}).obstacles == [obstacle]
    assert to_uv({"use-feature": "truststore"}, {}).obstacles == []


def test_what_is_set_for_uv_itself_stays() -> None:
    mine = {"UV_INDEX_URL": "https://mine", "UV_INDEX_STRATEGY": "first-index", "UV_EXTRA_INDEX_URL": "https://x"}
    pip = {"index-url": "https://a", "extra-index-url": "https://b", "timeout": "9"}
    uv = to_uv(pip, {**mine, "UV_HTTP_TIMEOUT": "5"})
    assert not {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_HTTP_TIMEOUT"} & set(uv.variables)
    # Which build of torch is the user's to choose: an automatic choice goes past a site's index.
    assert not [name for name in uv.variables if "TORCH" in name] and not uv.arguments


def test_certificates_are_those_that_pip_trusts(tmp_path: Path) -> None:
    assert to_uv({}, {"REQUESTS_CA_BUNDLE": "/r", "CURL_CA_BUNDLE": "/c"}).variables["SSL_CERT_FILE"] == "/r"
    assert to_uv({}, {"CURL_CA_BUNDLE": str(tmp_path)}).variables["SSL_CERT_DIR"] == str(tmp_path)
    assert to_uv({"cert": "/p"}, {"SSL_CERT_FILE": "/s", "REQUESTS_CA_BUNDLE": "/r"}).variables["SSL_CERT_FILE"] == "/p"
    assert "SSL_CERT_FILE" not in to_uv({}, {"SSL_CERT_FILE": "/s", "REQUESTS_CA_BUNDLE": "/r"}).variables


# --- where the cache lies


def test_the_cache_lies_where_its_files_can_be_linked_from(tmp_path: Path) -> None:
    """A file in place of uv's own cache folder stands for one that nothing can be linked from."""
    environment, checkout = tmp_path / "environment", tmp_path / "checkout"
    environment.mkdir()
    (tmp_path / "file").write_text("")
    for own, chosen in ((tmp_path / "cache", tmp_path / "cache"), (tmp_path / "file", checkout / ".uv-cache")):
        sharing = choose_sharing([sys.executable, "-c", f"print({str(own)!r})"], environment, checkout, {})
        assert sharing.variables == {"UV_CACHE_DIR": str(chosen), "UV_LINK_MODE": "hardlink"}
        assert not list(chosen.iterdir()) and not list(environment.iterdir())
    named = [sys.executable, "-c", f"print({str(tmp_path / 'file')!r})"]
    sharing = choose_sharing(named, environment, checkout, {"UV_CACHE_DIR": str(tmp_path / "file")})
    assert sharing.variables == {"UV_LINK_MODE": "copy"}
    assert "from the cache that UV_CACHE_DIR names, so the environment holds copies" in sharing.reason_against
    assert choose_sharing(named, environment, checkout, {"UV_LINK_MODE": "clone"}).variables == {}


def test_no_links_between_file_systems(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev or not os.access(other, os.W_OK):
        pytest.skip("there is no second file system")
    before = sorted(other.iterdir())
    assert not can_link(other, tmp_path)
    assert can_link(tmp_path / "a" / "b", tmp_path)
    assert sorted(other.iterdir()) == before


def test_what_an_environment_takes_counts_a_file_once(tmp_path: Path) -> None:
    for name in ("cache", "one", "other"):
        (tmp_path / name).mkdir()
    for name in ("shared", "own"):
        (tmp_path / "cache" / name).write_bytes(os.urandom(100_000))
        (tmp_path / "one" / name).hardlink_to(tmp_path / "cache" / name)
    (tmp_path / "one" / "twice").hardlink_to(tmp_path / "cache" / "own")
    (tmp_path / "one" / "alone").write_bytes(os.urandom(100_000))
    first = disk_use(tmp_path / "one")
    assert first.shared_bytes == 0 and 300_000 <= first.own_bytes < 340_000
    (tmp_path / "other" / "shared").hardlink_to(tmp_path / "cache" / "shared")
    use = disk_use(tmp_path / "one")
    assert 100_000 <= use.shared_bytes < 110_000 and use.own_bytes == first.own_bytes - use.shared_bytes


# --- what is said


LOCK = """
[[packages]]
name = "torch"
wheels = [{ url = "https://a/torch.whl", size = 2600000000 }]
[[packages]]
name = "numpy"
wheels = [{ url = "https://a/numpy.whl", size = 17000000 }]
[[packages]]
name = "local"
wheels = [{ url = "file://FOLDER/local%2B1.whl" }]
[[packages]]
name = "built"
sdist = { url = "https://a/built.tar.gz" }
[[packages]]
name = "tqdm"
wheels = [{ url = "https://a/tqdm.whl", size = 80000 }]
"""
DRY_RUN = "Resolved 5 packages in 1ms\n" + "".join(
    f"DEBUG Identified uncached distribution: {name}\n"
    for name in ("torch==2.13.0", "numpy==2.4.6", "local @ file:///x", "built==1")
)


def test_a_plan_says_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "local+1.whl").write_bytes(bytes(3_000_000))
    plan = make_plan(LOCK.replace("FOLDER", str(tmp_path)), DRY_RUN)
    assert dict(plan.to_fetch_bytes) == {"torch": 2_600_000_000, "numpy": 17_000_000, "local": 3_000_000, "built": None}
    assert plan_words(plan, 60 * 10**9) == (
        "5 packages, 4 of them to be fetched: 2.6 GB and 1 of unknown size (torch 2.6 GB, numpy 17 MB, local 3.0 MB). "
        "Unpacked they take more; 60 GB of disk are free."
    )
    assert plan_words(plan, 10**9).endswith("Only 1.0 GB of disk are free, which will not do.")
    printed = "Resolved\nDownloading numpy (16.2MiB)\nDownloading torch (2.4GiB)\n Downloaded numpy\n"
    assert progress_words(plan, printed) == "17 MB of 2.6 GB fetched, under way: torch (2.6 GB)"
    assert progress_words(plan, printed + " Downloaded torch\n") == ""
    without_sizes = plan_words(make_plan("", DRY_RUN), 60 * 10**9)
    assert "5 packages, 4 of them to be fetched: 4 of unknown size. " in without_sizes
    assert plan_words(make_plan(LOCK, "Resolved 5 packages in 1ms\n"), 1).startswith("5 packages, all of them in uv's")


def test_sizes_have_two_digits() -> None:
    assert [size_words(n) for n in (900, 99_000, 1_000_000, 526_574_961, 5_240_000_000)] == [
        "1 kB", "99 kB", "1.0 MB", "527 MB", "5.2 GB",
    ]  # fmt: skip


UNSOLVED = (
    "error: No solution found when resolving dependencies\n  cause: Because {} and you require torch==2.13.0, we\n"
)
FETCH = (
    "error: Request failed after 3 retries\n  cause: Failed to fetch: x\n  cause: error sending request\n  cause: {}\n"
)


# The words of uv 0.13.9, as it was seen to print them.
@pytest.mark.parametrize(
    ("output", "expected", "unexpected"),
    [
        (FETCH.format("dns error"), "could not be reached. Check the network", "certificate"),
        (FETCH.format("tcp connect error"), "could not be reached. Check the network", "proxy to"),
        (FETCH.format("tunnel error: failed to create underlying connection"), "the proxy", "be reached"),
        (FETCH.format("invalid peer certificate: UnknownIssuer"), "SSL_CERT_FILE or PIP_CERT", "be reached"),
        ("error: x\n  cause: HTTP status server error (500 Internal Server Error) for url x", "be reached", "disk"),
        (UNSOLVED.format("there is no version of torch==2.13.0"), "the package index has no torch==2.13.0", "file of"),
        (
            UNSOLVED.format("torch was not found in the package registry"),
            "no torch==2.13.0, or asks for a name",
            "file of",
        ),
        (
            UNSOLVED.format("torch==2.13.0 has no wheels with a matching Python ABI tag (e.g., `cp311`)"),
            "the package index has no file of torch==2.13.0 for Python 3.",
            "reached",
        ),
        (UNSOLVED.format("torch==2.13.0 has no usable wheels"), "has no file of torch==2.13.0 for", "reached"),
        (
            UNSOLVED.format("numpy was not found in the cache") + "hint: because the network was disabled",
            "UV_OFFLINE",
            "disk",
        ),
        (UNSOLVED.format("a depends on b"), "no versions that fit together", "reached"),
        (
            "error: x\n  cause: failed to write to file `a`: No space left on device (os error 28)",
            "disk is full",
            "net",
        ),
        ("error: failed to open file `/a`: Permission denied (os error 13)", "permissions", "network"),
        ("  Failed to build `mpi4py==4.1.2`\n  The build backend returned an error", "mpi4py==4.1.2 had to be", "net"),
        ("", "uv's own words stand above", "network"),
    ],
)
def test_uvs_failure_in_our_words(output: str, expected: str, unexpected: str) -> None:
    words = uv_failure_words(output, ["envs/torch.txt"])
    assert words.startswith("envs/torch.txt could not be installed: ") and expected in words
    assert unexpected not in words.replace("without any network", "")
    assert "\n" not in words and "://" not in words
    assert words.endswith("what is installed already stays.")


def test_lines_that_only_pip_knows_are_seen() -> None:
    assert unsupported_options("warning: Ignoring unsupported option in `a b.txt`: `--prefer-binary`\n") == [
        "--prefer-binary"
    ]
    assert unsupported_options('error: Expected `--hash`, found `"--global-option=x"`: a.txt:1:14') == [
        "--global-option"
    ]
    assert unsupported_options("Resolved 3 packages in 5ms\n") == []


# --- steps


def test_a_step_is_shown_and_kept_and_its_silence_is_filled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "import time; print('a', flush=True); print(' + x', flush=True); time.sleep(0.6); print('b'); exit(3)"
    with (tmp_path / "lock").open("w") as lock:
        hidden = re.compile(r"^ \+.*\n", re.MULTILINE)
        code, printed = run_step(
            [sys.executable, "-c", program], lock.fileno(), {}, lambda said, seconds: f"after {said!r}",
            hidden=hidden, silence_s=0.4,
        )  # fmt: skip
    assert (code, printed) == (3, "a\n + x\nb\n")
    shown = capfd.readouterr().err
    assert "after 'a\\n + x\\n'\n" in shown and " + x\n" not in shown.replace("+ x\\n", "")
    assert shown.startswith(("a\n", "after ''\na\n")) and shown.endswith("b\n")


def test_on_a_terminal_a_step_draws_its_own_progress(tmp_path: Path) -> None:
    """`script` gives the program that calls the step a terminal."""
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    program = tmp_path / "program.py"
    step = "import sys, os; print(sys.stderr.isatty(), os.get_terminal_size(2).columns)"
    program.write_text(
        "import sys\nfrom installation.steps import run_step\n"
        "with open('lock', 'w') as lock:\n"
        f"    print(run_step([sys.executable, '-c', {step!r}], lock.fileno(), {{}}, lambda *_: ''))\n"
    )
    command = f"stty cols 77; {sys.executable} {program}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(scripts)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert "True 77" in done.stdout and "(0, 'True 77\\n')" in done.stdout, done.stdout
