# scaling-eval: one training job for every framework x number of GPUs x model, and the papers' tables from the records.
#
# in   config/config.yaml (system and studies), config/studies/<study>.yaml
# out  results/<system>/<study>/measurements.csv, tables/, figures/
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/plan.smk"


rule all:
    input:
        lambda wildcards: [path for study in settings["studies"] for path in study_targets(study)],


include: "workflow/rules/tokenize.smk"
include: "workflow/rules/environments.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tables.smk"


# A mistake in a study that this call asks for is told here, in one line: from an input function it would come with a
# traceback. Snakemake does not know its targets yet, so the words of the command line are looked at.
if workflow.is_main_process:
    for hint in misspelt_studies(sys.argv[1:], study_names(ROOT)):
        logger.warning(hint)
    asked_studies = set(study_names(ROOT)).intersection(sys.argv) or settings["studies"]
    for study_name in asked_studies:
        check_study(study_name)
    tell_of_files(sys.argv[1:])
    find_jobs_in_queue(settings["system"])


# A study's name is a target: `./run axonn_weak_scaling`.
unusable = unusable_studies(ROOT, {rule.name for rule in workflow.rules})
for study_name, reason in unusable.items():
    if study_name in sys.argv:
        stop(reason)
    logger.warning(reason)

for study_name in study_names(ROOT):
    if study_name in unusable:
        continue

    rule:
        name:
            study_name
        input:
            partial(study_targets, study_name),


# Cells whose jobs are still in the queue, from a call that was killed: wait for them, so many in one step that a command
# line is not too long. update: a record that comes before the waiting begins stays.
for number, awaited in enumerate(chunks(jobs_in_queue, 100), start=1):

    rule:
        name:
            f"await_jobs_{number}"
        output:
            [update(str(record)) for record in awaited],
        localrule: True
        params:
            jobs=[f"{jobs_in_queue[record].job_id}={record}" for record in awaited],
        shell:
            "exec python scripts/await_jobs.py {params.jobs:q}"

    workflow.ruleorder(f"await_jobs_{number}", "train_cell")


onstart:
    note_owner(Path.cwd())
    remove_left_notes()
    check_start()
    tell_shell_settings()
    tell_jobs_what_is_asked()
    keep_system_file()


onsuccess:
    remove_change_note()
    for study in requested_studies:
        tell_last_lines(study)


onerror:
    remove_change_note()
    # Cells that failed stop the rules behind them; what the others measured is written all the same.
    queue = look_at_queue(system_of(settings["system"]))
    for study in requested_studies:
        write_partial_outputs(study, log, queue)
