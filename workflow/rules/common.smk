# What all stages share: the settings of this call and the objects that its rules ask (scripts/workflow_support/).
#
# in   config/config.yaml, and the studies, systems and models that the targets of a call ask for
# out  nothing
import runpy
import shlex
import sys
from functools import partial
from pathlib import Path

from snakemake.logging import logger

# The checkout of this file. The main Snakefile is somebody else's where this workflow is used as a module.
checkout = Path(workflow.current_basedir).parents[1]
sys.path.insert(0, str(checkout / "scripts"))
# A full disk leaves compiled modules that are cut short, and that no import gets past. Run as a file, it needs none.
runpy.run_path(str(checkout / "scripts" / "whole_bytecode.py"))

from contracts.project_files import shipped, shown
from launcher.shared_settings import put_python_on_path
from launcher.slurm.jobs import tokenizing_resources, training_resources
from planning.studies import study_names, unusable_studies
from reporting.made_from import file_digest
from snakemake_logger_plugin_cells import take_over
from workflow_support import hooks
from workflow_support.call import Call
from workflow_support.changes import OutputChanges, folder_of
from workflow_support.earlier_jobs import awaited_steps
from workflow_support.environments import Environments
from workflow_support.plan_messages import PlanMessages
from workflow_support.targets import FIGURE_SUFFIXES, TABLE_SUFFIXES, Targets

# `python` in a rule is the interpreter that runs Snakemake, activated or not; a conda environment comes before it.
put_python_on_path()

# In the commands of rules, relative where the checkout lies in the project (scripts/contracts/project_files.py).
SCRIPTS = shlex.quote(shown(checkout / "scripts", Path.cwd()).replace("{", "{{").replace("}", "}}"))
is_module = Path(workflow.main_snakefile).resolve() != (checkout / "Snakefile").resolve()

# `config` holds what --config and --configfile say, and nothing else; Snakemake hands it on to the jobs. Of a module it
# is what the `config:` of the `module:` says.
call = Call(workflow, Path.cwd(), config, is_module)
changes = OutputChanges(call)
environments = Environments(call, changes.note)
targets = Targets(call, changes, environments, PlanMessages(call))

# On the terminal a line for every cell, in place of Snakemake's paragraph for every job; not in others' workflows.
shows_cells = call.is_main and not is_module and take_over(logger, workflow.output_settings, study_names(call.root))


wildcard_constraints:
    system=r"[^/]+",
    study=r"[^/]+",
    framework=r"[^/]+",
    model=r"[^/]+",
    num_gpus=r"\d+",
    cell_id=r"[0-9a-f]{12}",
    repeat=r"\d+",
    corpus=r"[^/]+",
    split=r"[^/]+",
    table=r"[^/]+",
    # Or `<figure>_column.pdf` would be the PDF of a figure of that name.
    figure=r"[^/]+(?<!_column)",
    call=r"[^/]+",
