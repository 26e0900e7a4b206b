# scaling-eval: one training job for every framework x number of GPUs x model, and the papers' tables from the records.
#
# in   config/config.yaml (system and studies), config/studies/<study>.yaml
# out  results/<system>/<study>/measurements.csv, tables/, figures/
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


rule all:
    input:
        lambda wildcards: [path for study in settings["studies"] for path in study_targets(study)],


include: "workflow/rules/tokenize.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tables.smk"


# A study's name is a target: `./run axonn_weak_scaling`.
for study_name in study_names(ROOT):

    rule:
        name:
            study_name
        input:
            partial(study_targets, study_name),


onerror:
    # Cells that failed stop the rules behind them; what the others measured is written all the same.
    for study in requested_studies:
        write_partial_outputs(study)
