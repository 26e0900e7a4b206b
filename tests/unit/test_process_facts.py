"""What a process says of itself for the record: as it really was, and nothing that belongs to a job or a person."""

from __future__ import annotations

from pathlib import Path

import pytest

import factories
from workloads.process_facts import driver_version, process_facts, processor_name, speed_variables


def test_variables_that_change_speed_are_kept_and_no_others() -> None:
    speed = {
        **{"OMP_NUM_THREADS": "2", "KMP_AFFINITY": "compact", "GOMP_CPU_AFFINITY": "0 1", "MALLOC_TOP_PAD_": "1"},
        **{"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "1", "MALLOC_CONF": "background_thread:true"},
        **{"LD_PRELOAD": "libtcmalloc.so", "NCCL_ALGO": "Ring", "NCCL_TOPO_FILE": "t.xml", "UCX_TLS": "rc"},
        **{"FI_PROVIDER": "cxi", "PYTORCH_CUDA_ALLOC_CONF": "x", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"},
        **{"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVIDIA_TF32_OVERRIDE": "0", "OMPI_MCA_btl": "self"},
    }
    others = {
        **{"NCCL_COMM_ID": "10.0.0.1:1", "MASTER_PORT": "1", "OMPI_COMM_WORLD_RANK": "1", "PMI_RANK": "1"},
        **{"CUDA_VISIBLE_DEVICES": "3", "CUDA_HOME": "/cuda", "TORCH_HOME": "/me", "HOROVOD_RANK": "1"},
        **{"HOROVOD_SECRET_KEY": "s", "MKL_SERVICE_TOKEN": "s", "HOME": "/me", "HF_TOKEN": "s", "JAX_PROCESS_ID": "1"},
        **{"OMPI_MCA_hwloc_base_binding_policy": "none", "LD_LIBRARY_PATH": "/lib"},
    }
    assert speed_variables(speed | others) == dict(sorted(speed.items()))


def test_bytes_that_are_no_text_cost_no_record() -> None:
    """A path in Latin-1 that is loaded before all libraries: no JSON holds it as the process sees it."""
    assert speed_variables({"LD_PRELOAD": "/opt/jos\udce9/lib.so"}) == {"LD_PRELOAD": "/opt/jos\\xe9/lib.so"}


def test_a_framework_s_own_variables_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    given = speed_variables()
    monkeypatch.setenv("NCCL_ALGO", "Tree")  # what an adaptor might do
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    facts = process_facts(given, None)
    assert facts["variables"]["OMP_WAIT_POLICY"] == "active"
    assert "NCCL_ALGO" not in facts["variables"]
    assert facts["variables_of_framework"] == {"NCCL_ALGO": "Tree", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}


@pytest.mark.parametrize(
    ("variable", "framework", "threads"),
    [("3", None, 3), ("3,2", None, 3), ("3", 5, 5), ("", None, None), ("x", None, None)],
)
def test_threads(variable: str, framework: int | None, threads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert process_facts({}, framework)["threads"] == threads


def test_the_record_takes_them() -> None:
    schema = factories.record_schema().schema["properties"]["ranks"]["items"]["properties"]["process"]
    facts = process_facts(speed_variables(), 1)
    assert set(facts) == set(schema["properties"])
    factories.record_schema().evolve(schema=schema).validate(facts)
    factories.record_schema().evolve(schema=schema).validate(
        dict.fromkeys(facts) | {"variables": {}, "variables_of_framework": {}}
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC: 12\n",
            "535.104.05",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (dvs)\n", "550.54.14"),
        ("something else\n", None),
    ],
)
def test_driver(text: str, version: str | None, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version
    assert driver_version(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("model name\t: Big CPU\nflags\t: a\n\nmodel name\t: Little CPU\n", "Big CPU"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "0x41 0xd0c"),
        ("flags: fpu\n", None),
    ],
)
def test_processor(text: str, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    found = processor_name(tmp_path / "cpuinfo")
    assert found is None if name is None else found is not None and found.endswith(name)
    assert processor_name(tmp_path / "none") is None
