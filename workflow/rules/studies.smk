# A study's name is a target: `./run axonn_weak_scaling`.
#
# in   config/studies/<study>.yaml
# out  all that the study asks for: its records, measurements, tables and figures
unusable = unusable_studies(call.root, {rule.name for rule in workflow.rules})

if call.is_main:
    for reason in unusable.values():
        logger.warning(reason)

for study_name in study_names(call.root):
    if study_name in unusable:
        continue

    rule:
        name:
            study_name
        input:
            partial(targets.of_study, study_name),
