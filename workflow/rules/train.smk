# Tokens -> one record per cell and repeat: the only expensive step, never redone behind the user's back.
#
# in   results/tokens/<corpus>/train.json
# out  results/<system>/cells/<framework>/<model>/<num_gpus>gpu/<cell_id>/repeat<r>/record.json
#      beside it log.txt, and failure.json where there is no record


rule train_cell:
    input:
        # ancient: a newer checkout or a touched file says nothing about what was measured; the cell id does.
        tokens=lambda wildcards: ancient(f"results/tokens/{cell_value(wildcards, 'corpus').key}/train.json"),
    output:
        record="results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/record.json",
    log:
        "results/{system}/cells/{framework}/{model}/{num_gpus}gpu/{cell_id}/repeat{repeat}/log.txt",
    conda:
        "../../envs/workflow.yaml"
    # All cores: timed cells never overlap.
    threads: workflow.cores
    resources:
        # Limits are resources and no parameters: changing them reruns nothing.
        runtime=lambda wildcards: cell_value(wildcards, "time_limit_minutes"),
    params:
        # Nothing but the identity: a parameter that changes reruns the job, and only another cell may do that.
        cell=lambda wildcards: canonical_json(cell_value(wildcards, "cell").identity()),
    shell:
        # exec: the launcher must notice when Snakemake is gone.
        "exec python scripts/launch.py --system {wildcards.system} --cell {params.cell:q}"
        " --model-name {wildcards.model:q} --repeat {wildcards.repeat} --tokens {input.tokens}"
        " --record {output.record} --log {log} --time-limit-minutes {resources.runtime}"
