"""A file under its final name is complete, whatever ends the writer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.atomic import TEMPORARY_SUFFIX, replace_when_complete, write_json

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("mode", "content"), [("w", "é\r\n\n"), ("wb", b"\0\xff")])
def test_the_name_appears_with_the_whole_content(tmp_path, mode, content):
    path = tmp_path / "deep" / "file"
    with replace_when_complete(path, mode) as file:
        file.write(content)
        file.flush()
        assert not path.exists()
        assert [name.endswith(TEMPORARY_SUFFIX) for name in names(path.parent)] == [True]
    assert path.read_bytes() == (content if mode == "wb" else content.encode())
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_leaves_the_old_content(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), replace_when_complete(path) as file:
        file.write("new")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_reader_keeps_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader, replace_when_complete(path) as file:
        file.write("new")
    with path.open() as reader:
        with replace_when_complete(path) as file:
            file.write("newer")
        assert reader.read() == "new"
    assert path.read_text() == "newer"


def test_a_killed_writer_leaves_no_file_of_that_name(tmp_path):
    code = (
        "import os, sys; from contracts.atomic import replace_when_complete\n"
        "with replace_when_complete(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], env={**os.environ, "PYTHONPATH": str(SCRIPTS)}
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "file").exists()


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "ordinary").write_text("")
    write_json(tmp_path / "atomic", {})
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_json_round_trip(tmp_path):
    data = {"b": [1, 2.5, None], "a": "é"}
    write_json(tmp_path / "x.json", data)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == data and text.endswith("}\n") and "é" in text and text.index('"b"') < text.index('"a"')


@pytest.mark.parametrize(("data", "error"), [({"x": float("nan")}, ValueError), ({"x": object()}, TypeError)])
def test_what_is_no_json_is_not_written(tmp_path, data, error):
    with pytest.raises(error):
        write_json(tmp_path / "x.json", data)
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", ["a", "r", "x", "w+", ""])
def test_other_modes_are_refused(tmp_path, mode):
    with pytest.raises(ValueError, match="use one of"), replace_when_complete(tmp_path / "x", mode):
        pass
    assert names(tmp_path) == []
