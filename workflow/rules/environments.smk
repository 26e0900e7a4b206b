# Python for the frameworks that cannot use the workflow's own: made once, on the file system that all nodes see.
#
# in   envs/<environment>.txt, with envs/<environment>.sh where one is built; for conda envs/<environment>.yaml
# out  environments/<kind>-<environment>.txt: the path of the interpreter, environments/venv-<environment>/<digest>/


rule make_venv:
    input:
        requirements=lambda wildcards: environments.file(f"{wildcards.environment}.txt"),
        changes=lambda wildcards: environments.changes(wildcards.environment, "venv"),
    output:
        "environments/venv-{environment}.txt",
    log:
        "environments/venv-{environment}.log",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        folder=lambda wildcards: environments.folder(wildcards.environment),
    shell:
        f"exec python {SCRIPTS}/make_venv.py"
        " --requirements {input.requirements:q} --folder {params.folder:q}"
        " --output {output:q} 2> >(tee {log:q} >&2)"


# Snakemake makes it (--sdm conda); what is left is to note where.
rule locate_conda_environment:
    input:
        requirements=lambda wildcards: environments.file(f"{wildcards.environment}.yaml"),
        changes=lambda wildcards: environments.changes(wildcards.environment, "conda"),
    output:
        "environments/conda-{environment}.txt",
    log:
        "environments/conda-{environment}.log",
    localrule: True
    conda:
        lambda wildcards: shipped(call.root, f"envs/{wildcards.environment}.yaml")
    params:
        requirements=lambda wildcards: file_digest(shipped(call.root, f"envs/{wildcards.environment}.yaml")),
    shell:
        f"python {SCRIPTS}/note_interpreter.py" " --output {output:q} 2> >(tee {log:q} >&2)"
