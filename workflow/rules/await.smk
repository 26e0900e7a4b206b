# Jobs of an earlier call that was killed -> the records they bring. No second job is submitted for their cells.
#
# in   Slurm's queue. Which rules there are is decided before the targets are known, so Slurm is asked here; once, only
#      where the system has Slurm, and only by the call itself. A rule with wildcards beside `train_cell` was no way: of
#      10,000 cells each would be a step that polls, and two rules would compete for each.
# out  results/<system>/cells/<framework>/<model>/<num_gpus>gpu/<cell_id>/repeat<r>/record.json, written by those jobs
for number, (records, jobs) in enumerate(awaited_steps(call), start=1):

    rule:
        name:
            f"await_jobs_{number}"
        output:
            # update: a record that comes before the waiting begins stays.
            [update(record) for record in records],
        localrule: True
        params:
            jobs=jobs,
        shell:
            f"exec python {SCRIPTS}/await_jobs.py" " {params.jobs:q}"

    workflow.ruleorder(f"await_jobs_{number}", "train_cell")
