# Records -> measurements -> tables and figures: cheap, redone whenever a record, a study file or their code is newer.
#
# in   the records of a study's cells; config/; reference/
# out  results/<system>/<study>/measurements.csv, tables/<table>.{csv,md,tex}, figures/<figure>.{svg,pdf,png}


rule collect_measurements:
    input:
        records=lambda wildcards: records_of(study_of(wildcards.study, wildcards.system)),
        study="config/studies/{study}.yaml",
        system="config/systems/{system}.yaml",
        models="config/models.yaml",
        hardware="config/hardware.yaml",
    output:
        measurements="results/{system}/{study}/measurements.csv",
    log:
        "results/{system}/{study}/logs/collect.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        code=lambda wildcards: code_digest("collect.py"),
        adaptors=adaptor_code,
        cells=cells_digest,
    shell:
        "python scripts/collect.py --study {wildcards.study:q} --system {wildcards.system:q}"
        " --output {output.measurements:q} 2> >(tee {log:q} >&2)"


rule make_table:
    input:
        measurements="results/{system}/{study}/measurements.csv",
        reference=reference_of,
    output:
        multiext("results/{system}/{study}/tables/{table}", *TABLE_SUFFIXES),
    log:
        "results/{system}/{study}/logs/table-{table}.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        code=table_code("make_tables.py"),
        paper=lambda wildcards: study_of(wildcards.study, wildcards.system).paper,
        reference=lambda wildcards, input: f"--reference {input.reference}" if input.reference else "",
    shell:
        "python scripts/make_tables.py --measurements {input.measurements:q} --paper {params.paper:q}"
        " --table {wildcards.table:q} {params.reference}"
        " --output-dir results/{wildcards.system}/{wildcards.study}/tables 2> >(tee {log:q} >&2)"


rule make_figure:
    input:
        measurements="results/{system}/{study}/measurements.csv",
        reference=reference_of,
    output:
        multiext("results/{system}/{study}/figures/{figure}", *FIGURE_SUFFIXES),
    log:
        "results/{system}/{study}/logs/figure-{figure}.txt",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        code=table_code("make_figures.py"),
        paper=lambda wildcards: study_of(wildcards.study, wildcards.system).paper,
        reference=lambda wildcards, input: f"--reference {input.reference}" if input.reference else "",
    shell:
        "python scripts/make_figures.py --measurements {input.measurements:q} --paper {params.paper:q}"
        " --figure {wildcards.figure:q} {params.reference}"
        " --output-dir results/{wildcards.system}/{wildcards.study}/figures 2> >(tee {log:q} >&2)"
