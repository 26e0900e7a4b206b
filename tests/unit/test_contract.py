"""Every adaptor that a study names keeps to contracts/adaptor.py: what it declares, what it says, how it acts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

import factories
from contracts.adaptor import Framework
from contracts.cell import Layout
from contracts.storage import StateStorage
from models.gpt import Gpt
from planning.adaptors import environment_identity, load_adaptor
from workloads.training.training_cell import TrainingCell, cell_from_identity

ROOT = Path(__file__).resolve().parents[2]
AXES = {"data", "tensor", "pipeline"}
MODEL = Gpt("tiny", num_layers=4, hidden_size=32, num_heads=4, seq_length=32, vocab_size=512)


def named_in_studies() -> list[str]:
    files = sorted((ROOT / "config" / "studies").glob("*.yaml"))
    return sorted({name for file in files for name in yaml.safe_load(file.read_text())["frameworks"]})


ADAPTORS = named_in_studies()


def cells_of(name: str, framework: Framework) -> list[TrainingCell]:
    """Every combination of small degrees and every value of every option, sensible or not."""
    degrees = [(1, 2, 4) if axis in framework.parallelism else (1,) for axis in ("data", "tensor", "pipeline")]
    defaults = {option: values[0] for option, values in framework.options.items()}
    choices = [{}, *({option: value} for option, values in framework.options.items() for value in values)]
    settings = [("fp32", "cpu"), ("bf16", "cpu"), ("fp16", "cuda"), ("bf16", "cuda")]
    cells = []
    for (data, tensor, pipeline), chosen in product(product(*degrees), choices):
        layout = Layout(data, tensor, pipeline, 1, {**defaults, **chosen}, defaults)
        for (precision, device), checkpointing in product(settings, ("none", "full", "selective")):
            cells.append(
                factories.make_cell(
                    name, layout.num_gpus, MODEL, layout=layout, precision=precision, device=device,
                    activation_checkpointing=checkpointing,
                )
            )  # fmt: skip
    return cells


@pytest.mark.parametrize("name", ADAPTORS)
def test_its_declaration(name: str) -> None:
    module = load_adaptor(name)
    framework: Framework = module.FRAMEWORK
    assert framework.version >= 1
    assert framework.parallelism <= AXES
    assert framework.packages, "versions of its packages belong into the record"
    requirements = environment_identity(framework.environment, ROOT)["requirements"]
    assert all("==" in line for line in requirements), f"envs/{framework.environment}.txt pins every version"
    for option, values in framework.options.items():
        assert values and len(set(values)) == len(values)
        assert f"`{option}`" in (module.__doc__ or ""), f"the module says what `{option}` means"
        json.dumps(values)


@pytest.mark.parametrize("name", ADAPTORS)
def test_it_is_read_without_its_packages(name: str) -> None:
    blocked = ("torch", "deepspeed", "megatron", "axonn", "mpi4py", "horovod", "jax", "tensorflow", "ray", "accelerate")
    program = "import sys\n" + "".join(f"sys.modules[{module!r}] = None\n" for module in blocked)
    program += f"from planning.adaptors import load_adaptor\nload_adaptor({name!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ADAPTORS)
def test_it_answers_for_every_layout(name: str) -> None:
    """None or a reason in words, the same for the cell that the launcher reads back; no GPT is never taken for one."""
    module = load_adaptor(name)
    cells = cells_of(name, module.FRAMEWORK)
    answers = [module.unsupported_reason(cell) for cell in cells]
    read_back = [cell_from_identity(cell.identity(), cell.model.name) for cell in cells]
    assert answers == [module.unsupported_reason(cell) for cell in read_back]
    assert all(answer is None or (isinstance(answer, str) and len(answer) > 10) for answer in answers)
    assert None in answers, "it can run something"


@pytest.mark.parametrize("name", ADAPTORS)
def test_it_says_where_its_state_lies(name: str) -> None:
    module = load_adaptor(name)
    if not hasattr(module, "stored_state"):
        pytest.skip("it keeps its state as plain torch does, which is the default")
    for cell in cells_of(name, module.FRAMEWORK):
        if module.unsupported_reason(cell) is None:
            assert isinstance(module.stored_state(cell), StateStorage)


@pytest.fixture(scope="session")
def pythons(request: pytest.FixtureRequest) -> Any:
    """The interpreter of an environment, by its name."""

    def python(environment: str) -> str:
        return sys.executable if environment == "torch" else request.getfixturevalue(f"{environment}_python")

    return python


@pytest.mark.slow
@pytest.mark.timeout(1500)  # the first to need an environment installs it
@pytest.mark.parametrize("environment", sorted({load_adaptor(name).FRAMEWORK.environment for name in ADAPTORS}))
def test_its_engine_keeps_the_contract(environment: str, pythons: Any, tmp_path: Path) -> None:
    names = [name for name in ADAPTORS if load_adaptor(name).FRAMEWORK.environment == environment]
    cells = {
        name: factories.make_cell(name, 1, MODEL, layout=Layout(1, micro_batch_size=2), learning_rate=0.01).identity()
        for name in names
    }
    script = Path(__file__).with_name("engine_contract.py")
    command = [pythons(environment), str(script), json.dumps(cells), str(tmp_path)]
    contract = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    done = subprocess.run(command, env=os.environ | contract, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {name: [] for name in names}
