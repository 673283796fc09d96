"""A sweep until its first trial: look around, read what was chosen, plan, estimate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import click

from nanoserve_bench import devices
from nanoserve_bench.block import Study
from nanoserve_bench.builds import Build, build
from nanoserve_bench.capacity import with_shares
from nanoserve_bench.commands.choices import SweepOptions, choices_of
from nanoserve_bench.commands.surroundings import Surroundings, look_around
from nanoserve_bench.estimate import Costs, estimate
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import VOCABULARY, Fact, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.resume import unfinished
from nanoserve_bench.run_names import dated, free, now
from nanoserve_bench.systems import find
from nanoserve_bench.workload import FULL, SUFFIX, Prompt, PromptBook
from nanoserve_bench.workload_file import WorkloadFile, read_workload


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sweep that is ready to be started."""

    study: Study
    folder: Path
    facts: tuple[Fact, ...]
    costs: Costs


def prepare(options: SweepOptions) -> Prepared:
    """Everything that has to be known before the first trial; nothing is written.

    Raises:
        click.UsageError: Two options contradict each other.
        PlanError: What was chosen cannot be measured.
    """
    choices = choices_of(options)
    around = look_around(options.model, options.threads)
    choices, files = _with_files(choices, around.model)
    plan = _planned(options, choices, around, files)
    study = Study(
        plan=plan,
        model=around.model,
        machine=around.machine,
        threads=around.threads,
        prompts=PromptBook(
            seed=plan.seed,
            workloads=plan.workloads,
            vocabulary=around.model.vocabulary,
            given=_given(plan, files),
        ),
        engines={arm.name: build(arm.revision).folder for arm in plan.arms if arm.revision},
    )
    return Prepared(
        study=study,
        folder=options.out / plan.run_id,
        facts=_facts(around),
        costs=estimate(plan, weight_bytes=around.model.weight_bytes, earlier=options.out),
    )


def _planned(
    options: SweepOptions,
    choices: Choices,
    around: Surroundings,
    files: dict[str, WorkloadFile],
) -> Plan:
    """The plan, under the name of an unfinished sweep of the same plan where there is one."""
    out, model, code = options.out, around.model, around.code
    measured, skipped = devices.choose(around.probe.devices, options.wanted)
    if options.shares:
        choices = with_shares(choices, options.shares, measured, model=model.name, earlier=out)
    plan = build_plan(
        choices,
        run_id=options.run_id or free(dated(*_words(choices, measured), code.short), out),
        created_at=now(),
        model=model.name,
        devices=measured,
        skipped_devices=skipped,
        revision=code.commit,
        dirty=code.dirty,
        find_system=find,
        build_engine=_build,
        files=files,
    )
    going_on = unfinished(out, plan) if options.run_id is None else None
    return plan if going_on is None else dataclasses.replace(plan, run_id=going_on.name)


def _with_files(choices: Choices, model: ModelFolder) -> tuple[Choices, dict[str, WorkloadFile]]:
    """The choices with files of requests by their names, and the files that were read."""
    files: dict[str, WorkloadFile] = {}
    names = []
    for workload in choices.workloads:
        if workload.endswith(SUFFIX):
            file = read_workload(Path(workload), model)
            files[file.name] = file
            names.append(file.name)
        else:
            names.append(workload)
    return dataclasses.replace(choices, workloads=tuple(names)), files


def _given(plan: Plan, files: dict[str, WorkloadFile]) -> dict[str, tuple[Prompt, ...]]:
    """The prompts of files by workload; an open loop offers those of the file it is named after."""
    return {
        workload.name: file.prompts
        for workload in plan.workloads
        for name, file in files.items()
        if workload.name == name or (workload.arrivals and workload.name.startswith(f"{name}-"))
    }


def _facts(around: Surroundings) -> tuple[Fact, ...]:
    code, model = around.code, around.model
    return (
        *around.facts,
        Fact(name="git_commit", value=code.commit),
        Fact(name="git_dirty", value=code.dirty),
        Fact(name="sources", value=code.sources),
        Fact(name="constraints", value=code.constraints),
        Fact(name="model_source", value=model.source),
        Fact(name=VOCABULARY, value=model.vocabulary.size, unit="token ids"),
    )


def _build(name: str) -> Build:
    """The engine at a revision; said, because compiling it takes a while."""
    click.echo(f"preparing nanoserve at {name}", err=True)
    return build(name)


def _words(choices: Choices, measured: tuple[str, ...]) -> list[str]:
    """What tells one run id from another: devices and workloads."""
    kinds = dict.fromkeys(device.partition(":")[0] for device in measured)
    return [*kinds, "full" if choices.workloads == FULL else "-".join(choices.workloads)]
