# Tokens -> one record per cell and repeat: the only expensive step, never redone behind the user's back.
#
# in   results/tokens/<corpus>/train.{json,bin}, environments/<kind>-<name>.txt where a framework has a Python of its own
# out  results/<system>/cells/<framework>/<model>/<num_gpus>gpu/<cell_id>/repeat<r>/record.json
#      beside it log.txt, and failure.json where there is no record

# A job is measured on the system that was described when it was submitted.
# It is no parameter: where it lies measures nothing again.
SYSTEM_FILE = f"--system-file {shlex.quote(kept_system_file(settings['system']))}"
training = training_resources(system_of(settings["system"]), cell_value)

# Who shows the cells says how each ended. A job of Slurm keeps the words of its launcher in its own log.
SILENT = "--silent" if shows_cells and not system_of(settings["system"]).slurm else ""


rule train_cell:
    input:
        # Nothing where the record is there already: neither a newer checkout, nor a touched token file, nor tokens that
        # had to be made again may redo a measurement. The cell id says what was measured.
        needed_to_train,
    output:
        # update: Snakemake deletes no record that came since the plan was made; launch.py leaves it alone.
        record=update("results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/record.json"),
    log:
        "results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/log.txt",
    conda:
        "../../envs/workflow.yaml"
    # On this machine all cores: timed cells never overlap. Under Slurm what the job gets on each of its nodes.
    threads: training["threads"] or all_cores()
    resources:
        **training["resources"],
        # Limits and what a site is asked for are resources and no parameters: changing them reruns nothing.
        time_limit_s=lambda wildcards: cell_value(wildcards, "time_limit_s"),
    params:
        cell=lambda wildcards: cell_value(wildcards, "identity"),
        tokens=lambda wildcards: cell_value(wildcards, "tokens"),
    shell:
        # exec: the launcher must notice when Snakemake is gone.
        "exec python scripts/launch.py --system {wildcards.system:q} --cell {params.cell:q}"
        " --model-name {wildcards.model:q} --repeat {wildcards.repeat} --tokens {params.tokens:q}"
        " --record {output.record:q} --log {log:q} --time-limit-s {resources.time_limit_s}"
        f" {SYSTEM_FILE} {SILENT}"
