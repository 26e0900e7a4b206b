# Records -> measurements -> tables and figures: cheap, redone whenever the content of what they are made from changes.
#
# in   the records of a study's cells; config/; reference/; the code of scripts/
# out  results/<system>/<study>/measurements.csv, tables/<table>.{csv,md,tex}, figures/<figure>.{svg,pdf,png} and
#      <figure>_column.pdf, made_from/*.json with digests of what went into each
#
# Snakemake compares time stamps of inputs and outputs whatever rerun-triggers says, so no input here may be newer than
# an output: records that are there are no inputs at all, and files are ancient(). What has changed is found by digests
# (scripts/reporting/made_from.py), and a rule with a changed source gets one more input that is not there yet: the note of
# `note_changes`, made once in a call. So nothing here needs what Snakemake remembers in .snakemake either.


rule note_changes:
    output:
        # No temp(), which would not remove a target; the hooks at the end of a call do.
        touch("results/changes/{call}.txt"),
    localrule: True


rule collect_measurements:
    input:
        missing_records=changes.measurements_missing,
        changes=changes.of_measurements,
    output:
        measurements="results/{system}/{study}/measurements.csv",
    log:
        "results/{system}/{study}/logs/collect.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        folder=folder_of,
    shell:
        f"python {SCRIPTS}/collect.py"
        " --study {wildcards.study:q} --system {wildcards.system:q}"
        " --output {output.measurements:q} --made-from {params.folder:q}/made_from/measurements.json 2> >(tee {log:q} >&2)"


rule make_table:
    input:
        measurements=changes.measurements,
        reference=changes.reference,
        changes=changes.of("table", TABLE_SUFFIXES),
    output:
        multiext("results/{system}/{study}/tables/{table}", *TABLE_SUFFIXES),
    log:
        "results/{system}/{study}/logs/table-{table}.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        paper=lambda wildcards: call.study(wildcards.study, wildcards.system).paper,
        reference=lambda wildcards, input: ["--reference", input.reference] if input.reference else [],
        folder=folder_of,
    shell:
        f"python {SCRIPTS}/make_tables.py"
        " --measurements {input.measurements:q} --paper {params.paper:q}"
        " --table {wildcards.table:q} {params.reference:q} --output-dir {params.folder:q}/tables"
        " --made-from {params.folder:q}/made_from/table-{wildcards.table:q}.json 2> >(tee {log:q} >&2)"


rule make_figure:
    input:
        measurements=changes.measurements,
        reference=changes.reference,
        changes=changes.of("figure", FIGURE_SUFFIXES),
    output:
        multiext("results/{system}/{study}/figures/{figure}", *FIGURE_SUFFIXES),
    log:
        "results/{system}/{study}/logs/figure-{figure}.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        paper=lambda wildcards: call.study(wildcards.study, wildcards.system).paper,
        reference=lambda wildcards, input: ["--reference", input.reference] if input.reference else [],
        folder=folder_of,
    shell:
        f"python {SCRIPTS}/make_figures.py"
        " --measurements {input.measurements:q} --paper {params.paper:q}"
        " --figure {wildcards.figure:q} {params.reference:q} --output-dir {params.folder:q}/figures"
        " --made-from {params.folder:q}/made_from/figure-{wildcards.figure:q}.json 2> >(tee {log:q} >&2)"
