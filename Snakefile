# scaling-eval: one training job for every framework x number of GPUs x model, and the papers' tables from the records.
#
# in   config/config.yaml (system and studies), config/studies/<study>.yaml
# out  results/<system>/<study>/measurements.csv, tables/, figures/
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


rule all:
    input:
        targets.of_all,


include: "workflow/rules/tokenize.smk"
include: "workflow/rules/environments.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/await.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/studies.smk"


onstart:
    hooks.at_start(call, changes)


onsuccess:
    hooks.at_success(call, changes)


onerror:
    hooks.at_error(call, changes, log)
