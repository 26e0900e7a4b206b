# What a call says and checks before it starts anything, and what it writes when some of its cells failed.
#
# in   the studies that are asked for; Slurm's queue where the system is a cluster
# out  nothing, but for the partial outputs of a study whose cells failed


def find_jobs_in_queue(system):
    """Look for jobs of any study, before one is submitted. Where Slurm cannot be asked, a dry run goes on."""
    if not system_of(system).slurm:
        return
    queue = look_at_queue(system_of(system))
    if queue.silence:
        queue_errors.append(queue.silence)
        logger.warning(f"Slurm cannot be asked which cells have a job in the queue: {queue.silence}")
    jobs_in_queue.update(awaited_jobs(readable_studies(system), RESULTS, Path.cwd(), queue.jobs))
    for record, job in jobs_in_queue.items():
        logger.warning(
            f"{record.parent}: job {job.job_id} of an earlier call is {job.state.lower()}; it is waited for, and no second one submitted"
        )


def check_start():
    """Stop a real run that would submit jobs twice, or nowhere, before it starts anything."""
    system = system_of(settings["system"])
    in_slurm = workflow.executor_plugin.name.startswith("slurm")
    if queue_errors and has_slurm():
        stop("nothing is submitted: a cell that still has a job in the queue would get a second one")
    if system.slurm and not in_slurm:
        stop(f"the cells of system {system.name} are Slurm jobs (its file has `slurm`): run snakemake --profile slurm")
    if in_slurm and stale_plugins(ROOT):
        stop(f"{', '.join(stale_plugins(ROOT))} is installed in another state of it: pip install -r envs/workflow.txt")
    if system.slurm and not has_slurm():
        stop("squeue is not on PATH: start this on a login node of the cluster")
    if system.slurm and unsafe_folder(Path.cwd()):
        stop(unsafe_folder(Path.cwd()))
    if in_slurm and not system.slurm:
        stop(f"config/systems/{system.name}.yaml has no key `slurm`: use ./run, or --config system=<a cluster's file>")


def tell_shell_settings():
    """Say once which variables of this shell no training process gets, where cells are to be measured."""
    system = system_of(settings["system"])
    if workflow.is_main_process and any(without_record(study, RESULTS) for study in requested_studies):
        given = shared_settings(1, system.environment)
        if dropped := dropped_settings(given, in_slurm=system.slurm is not None):
            logger.warning(dropped)


def kept_system_file(name):
    """Return a system's file; for jobs of Slurm the path of a copy that stays as it is (see keep_system_file)."""
    path = Path(f"config/systems/{name}.yaml")
    return f"results/slurm-logs/systems/{name}-{file_digest(path)}.yaml" if system_of(name).slurm else path.as_posix()


def keep_system_file():
    """Copy the system's file to where its jobs read it."""
    path = Path(kept_system_file(settings["system"]))
    if system_of(settings["system"]).slurm and not path.exists():
        with replace_when_complete(path) as file:
            file.write(Path(f"config/systems/{settings['system']}.yaml").read_text(encoding="utf-8"))


def tell_jobs_what_is_asked():
    """Set a variable, which Slurm hands to the jobs, to the studies that this call is about."""
    os.environ[ASKED_VARIABLE] = " ".join(study.name for study in requested_studies)


def write_partial_outputs(study, snakemake_logs, queue):
    """Write what the finished cells measured where others failed, which kept the rules from it; say what is missing."""
    from reporting.study_outputs import missing_cells, write_study_outputs

    failures = note_failed_steps(study, map(Path, snakemake_logs), ROOT)
    missing = missing_cells(study, outcomes_now(study, ROOT / "results", Path.cwd(), queue, failures))
    for key, line in missing.items():
        logger.error(f"{study.name}: missing: {line}", extra={OURS.cell: key})
    try:
        folder = write_study_outputs(study, load_paper(study.paper), ROOT, queue, failures)
    except (ValueError, OSError) as error:
        logger.error(f"{study.name}: tables of the finished cells could not be written: {error}")
        return
    tell_last_lines(study)
    if not missing:
        logger.error(f"{study.name}: every cell is measured, and a later step failed; its message stands above.")
        return
    logger.error(
        f"{study.name}: {len(missing)} of {len(study.runnable())} cells are missing; what the others measured is in "
        f"{folder.relative_to(ROOT)}. The same command again runs the missing ones."
    )


def tell_plan(study):
    """Say once which planned cells will not be launched and why; in a dry run also what each missing cell is."""
    if study in requested_studies:
        return
    hardware = explained(load_hardware, ROOT)
    for line in plan_lines(study, hardware):
        logger.warning(line)
    if workflow.dryrun:
        for line in explained(list, missing_lines(study, RESULTS, hardware)):
            logger.info(line)
    else:
        cells = cells_to_show(study, RESULTS, jobs_in_queue)
        logger.info(f"{study.name} on {study.system.name}: {len(cells)} cells to measure", extra={OURS.cells: cells})


def tell_last_lines(study):
    """Say what is measured, where it is and who was fastest."""
    from terminal.last_lines import last_lines

    try:
        for line in last_lines(study, RESULTS):
            tell(line)
    except (ValueError, OSError) as error:
        logger.error(f"{study.name}: what came out cannot be told: {error}")


def tell_budgets_beside(name):
    """Say once what the missing cells will take of all studies that are asked for with this one, before anything else
    of any of them; without Slurm in a dry run only.
    """
    if name in told_budgets:
        return
    words = [word for word in study_names(ROOT) if word in sys.argv]
    together = next((names for names in (words, settings["studies"]) if name in names), [name])
    told_budgets.update(together)
    for study in [study_of(one, settings["system"]) for one in together]:
        if study.system.slurm or workflow.dryrun:
            tell_budget(study)


def tell_budget(study):
    hardware = explained(load_hardware, ROOT)
    cost = explained(budget, study, RESULTS, jobs_in_queue, hardware)
    if not cost.cells:
        return
    logger.warning(f"{study.name} on {study.system.name}: {cost.words()}")
    if workflow.dryrun:
        for line in cost.lines():
            logger.info(line)
    if study.system.slurm:
        for line in limits_lines(study, RESULTS, jobs_in_queue, queue_errors):
            logger.warning(f"{study.name}: {line}")
        if workflow.dryrun and not queue_errors:
            for line in refused_lines(study, RESULTS, jobs_in_queue):
                logger.warning(f"{study.name}: {line}")


def tell_changes(study):
    """Say which outputs that are there will be made anew, and what has changed since they were made."""
    for (kind, name), changes in changed_outputs(study).items():
        tell(f"{study.name}: {f'{kind} {name}'.strip()} made anew; changed since: {', '.join(changes)}")


def tell_of_files(words):
    """Say which files that are asked for by their names will stay as they are, though what they were made from has
    changed: Snakemake makes the note of the changes for a study only, since it makes no missing input for a file that
    is there.
    """
    for word in words:
        found = drawn_file(word)
        if found and Path(word).is_file() and found[1] in study_names(ROOT):
            system, study, kind, name = found
            changes = found_changes(study, system, "measurements") or found_changes(study, system, kind, name)
            changes = ["records are missing"] if missing_records(study, system) else changes
            if changes:
                logger.warning(
                    f"{word} stays as it is, though what it was made from has changed ({', '.join(changes)}): ask for "
                    f"the study ({study}) to have it made anew"
                )


def remove_left_notes():
    """Remove the notes of calls that were killed."""
    for path in left_notes(Path(CHANGE_NOTE).parent):
        path.unlink(missing_ok=True)


def remove_change_note():
    """Leave nothing behind that only this call's rules looked at."""
    Path(CHANGE_NOTE).unlink(missing_ok=True)
    with suppress(OSError):  # of a call that is at work beside this one
        Path(CHANGE_NOTE).parent.rmdir()


@cache
def outputs_of_others():
    """Return what other calls in this folder have locked; nothing where this call takes no lock itself."""
    takes_lock = workflow.is_main_process and workflow.executor_plugin and workflow.execution_settings.lock
    return locked_outputs(Path.cwd()) if takes_lock and not workflow.dryrun else frozenset()


def refuse_beside_others(paths):
    """End this call where another one in this folder makes what it wants. Snakemake would refuse it too, a moment
    later, and advise to take the lock away by force.
    """
    if not outputs_of_others().isdisjoint(map(str, paths)):
        stop(refusal(Path.cwd()))
