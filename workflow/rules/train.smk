# Tokens -> one record per cell and repeat: the only expensive step, never redone behind the user's back.
#
# in   results/tokens/<corpus>/train.{json,bin}, environments/<kind>-<name>.txt where a framework has a Python of its own
# out  results/<system>/cells/<framework>/<model>/<num_gpus>gpu/<cell_id>/repeat<r>/record.json
#      beside it log.txt, and failure.json where there is no record

# What makes a cell run again, in words:
# - A cell without a record runs, a cell with one does not: a study asks for missing records only, and a cell that has
#   its record has no inputs. So nothing that Snakemake compares (times, code, inputs) can redo a measurement: no newer
#   checkout, no touched token file, no tokens or environment that had to be made again.
# - What changes a measurement (a value of the cell, the pins of its environment, a version of its adaptor) makes another
#   cell with another path, and the old record stays. Changed back, it is found again.
# - Limits and what a site is asked for are resources, and where the system's file lies is a word of the command: neither
#   is a parameter, and a change of either measures nothing again.
# - A record is an update() output: Snakemake deletes none that came since the plan was made, and launch.py leaves it be.
# - A record by other code than today's stays, and its row is marked `code_changed`. `status.py forget` sets records aside
#   on request, and collect.py those that are damaged: these cells run at the next call.
# - A cell that failed has no record, so the next call runs it again.
# Measurements, tables and figures are cheap and follow another policy (tables.smk).

training = training_resources(call.system(), call.cell_value)
# Not a parameter, and quoted here: where the file lies measures nothing again.
system_file = shlex.quote(hooks.kept_system_file(call))
# Who shows the cells says how each ended. A job of Slurm keeps the words of its launcher in its own log.
silent = "--silent" if shows_cells and not call.system().slurm else ""


rule train_cell:
    input:
        targets.needed_to_train,
    output:
        record=update("results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/record.json"),
    log:
        "results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/log.txt",
    conda:
        "../../envs/workflow.yaml"
    # On this machine all cores: timed cells never overlap. Under Slurm what the job gets on each of its nodes.
    threads: training["threads"] or call.all_cores()
    resources:
        **training["resources"],
        time_limit_s=lambda wildcards: call.cell_value(wildcards, "time_limit_s"),
    params:
        cell=lambda wildcards: call.cell_value(wildcards, "identity"),
        tokens=lambda wildcards: call.cell_value(wildcards, "tokens"),
    shell:
        # exec: the launcher must notice when Snakemake is gone.
        f"exec python {SCRIPTS}/launch.py"
        " --system {wildcards.system:q} --cell {params.cell:q}"
        " --model-name {wildcards.model:q} --repeat {wildcards.repeat} --tokens {params.tokens:q}"
        " --record {output.record:q} --log {log:q} --time-limit-s {resources.time_limit_s}"
        f" --system-file {system_file} {silent}"
