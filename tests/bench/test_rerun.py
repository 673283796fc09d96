"""The command of a study: recorded as it was given, or derived from the plan and equal to it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click
import pytest

from nanoserve_bench import documents, systems
from nanoserve_bench.cli import cli
from nanoserve_bench.commands.choices import SweepOptions, choices_of
from nanoserve_bench.commands.recorded import command_line, portable
from nanoserve_bench.errors import UnavailableError
from nanoserve_bench.load import LoadChoice
from nanoserve_bench.plan import AcknowledgedRefusal, Manifest, Plan
from nanoserve_bench.planning import Choices, build_plan
from nanoserve_bench.rerun import derived
from nanoserve_bench.results import MANIFEST, PLAN
from nanoserve_bench.systems import System

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob(f"*/{PLAN}"))
FACTS = {"run_id", "created_at", "revision", "dirty", "model", "skipped_devices", "devices"}
"""What of a plan the sweep looks up and the command does not say."""


def context_of(command: str) -> click.Context:
    """What click makes of a command line."""
    program, name, *arguments = shlex.split(command)
    assert program == "nanoserve-bench"
    return cli.commands[name].make_context(name, arguments, parent=click.Context(cli))


def choices_from(command: str) -> Choices:
    given = context_of(command).params
    return choices_of(SweepOptions(**given))


def planned(choices: Choices, like: Plan | None = None) -> Plan:
    """The plan of choices, on a machine with the systems of another plan."""
    versions = {} if like is None else {arm.system: arm.version for arm in like.arms}
    loops = () if like is None else (w.name for w in like.workloads if w.arrivals is not None)
    names = set(loops)
    offered = set() if like is None else {c.system for c in like.cells if c.workload in names}
    missing = {} if like is None else {hole.system: hole.reason for hole in like.skipped_arms}

    def find(name: str) -> type[System]:
        if name in missing:
            raise UnavailableError(name, missing[name], optional=True)
        found = systems.find_all()[name].system
        assert found is not None
        version = versions.get(name, "1.0")
        as_it_was: dict[str, object] = {"version": classmethod(lambda _: version)}
        if like is not None:
            as_it_was["open_loop"] = name in offered
        return type(found.__name__, (found,), as_it_was)

    return build_plan(
        choices,
        run_id="a-run",
        created_at="2026-11-30T00:00:00+00:00",
        model="smollm2-135m",
        devices=("cpu",) if like is None else like.devices,
        skipped_devices=(),
        revision=None,
        dirty=None,
        find_system=find,
    )


def differences(one: Plan, other: Plan) -> list[str]:
    """Fields in which two plans differ, but for what a sweep looks up."""
    return [
        field.name
        for field in dataclasses.fields(Plan)
        if field.name not in FACTS and getattr(one, field.name) != getattr(other, field.name)
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_derived_command_parses_into_the_very_plan_it_is_derived_from(folder: Path) -> None:
    plan = documents.decode(Plan, (folder / PLAN).read_text(), PLAN)
    manifest = documents.decode(Manifest, (folder / MANIFEST).read_text(), MANIFEST)
    assert isinstance(plan, Plan)
    assert isinstance(manifest, Manifest)
    (threads,) = [fact.value for fact in manifest.facts if fact.name == "threads"]
    command = derived(plan, threads).command
    again = planned(choices_from(command), plan)
    # A plan of an earlier version has no holes for arms that take no requests when they are due.
    there = {arm.name for arm in plan.arms}
    holes = tuple(hole for hole in again.skipped_arms if hole.arm not in there)
    again = dataclasses.replace(again, skipped_arms=holes)
    assert differences(again, plan) == []
    given = context_of(command).params
    assert (given["model"], given["wanted"], given["threads"]) == (
        plan.model, plan.devices, threads
    )  # fmt: skip


CHOICES = {
    "several baselines, one of them last, and an arm of the name that the sweep gives": Choices(
        arms=(
            "srv=openai,url=http://127.0.0.1:9/v1,model=m", "hf-static-again=hf-static",
            "hf-static", "hf-generate",
        ),
        baselines=("hf-generate", "hf-static"),
        slots=(2, 4),
    ),
    "two workloads with slots of their own": Choices(workloads=("day44", "day44x32")),
    "a stopping rule": Choices(least_blocks=4, most_blocks=12, target=0.02, seed=7),
    "open loops with an objective": Choices(
        arms=("hf-generate", "nanoserve"),
        load=LoadChoice(
            rates_per_s=(0.5, 12.34), process="constant", objective_ttft_ms=250.0,
            objective_tpot_ms=30.5,
        ),
    ),
    "both dtypes, and a refusal that is expected": Choices(
        dtypes=("float32", "bfloat16"),
        acknowledged=(
            AcknowledgedRefusal(
                cell="nanoserve/cpu/bfloat16/8/day44", rule="PAIR005",
                reason="bf16 ties; they're 'near'",
            ),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_the_command_of_any_choices_makes_their_plan_again(name: str) -> None:
    plan = planned(CHOICES[name])
    again = planned(choices_from(derived(plan, None).command))
    assert differences(again, plan) == []


def test_what_the_plan_does_not_tell_is_said() -> None:
    plan = planned(Choices())
    (workload,) = plan.workloads
    mine = dataclasses.replace(workload, name="mine", source="sha256:abc")
    found = derived(dataclasses.replace(plan, workloads=(mine,)), 2)
    assert "--workload mine.jsonl" in found.command
    assert found.untold == ("mine.jsonl is the file with the digest sha256:abc",)
    assert derived(plan, 2).untold == ()


def test_a_start_records_what_was_given_in_one_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RESULTS.parent)
    line = (
        f"nanoserve-bench sweep --workload={tmp_path}/mine.jsonl --quick --slots 2 --slots=4 "
        f"--arm hf-generate --arm 'x=openai,url=http://127.0.0.1:8000/v1,model={tmp_path}/m' "
        f"--acknowledge a/cpu/float32/1/mine PAIR005 'a near-tie, known' --out {RESULTS} "
        "--model owner/name --objective 250 30.5 --rate 6"
    )
    recorded = command_line(context_of(line))
    assert recorded == (
        "nanoserve-bench sweep --model owner/name --arm hf-generate --arm "
        "x=openai,url=http://127.0.0.1:8000/v1,model=m --workload mine.jsonl --slots 2 --slots 4 "
        "--rate 6.0 --objective 250.0 30.5 --quick --acknowledge a/cpu/float32/1/mine PAIR005 "
        "'a near-tie, known' --out bench/results"
    )
    assert str(tmp_path) not in recorded
    assert command_line(context_of(recorded)) == recorded, "it says the same when it is read again"


def test_nothing_given_is_nothing_recorded() -> None:
    assert command_line(context_of("nanoserve-bench sweep")) == "nanoserve-bench sweep"


@pytest.mark.parametrize("flag", ["--rivals", "--no-rivals"])
def test_a_flag_that_was_denied_is_recorded_as_denied(flag: str) -> None:
    line = f"nanoserve-bench perf --rounds 3 {flag}"
    assert command_line(context_of(line)) == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("day44", "day44"),
        ("owner/name", "owner/name"),
        ("bench/workload.jsonl", "bench/workload.jsonl"),
        ("/somewhere/else/model.gguf", "model.gguf"),
        ("~/models/mine", "mine"),
        ("../elsewhere/mine.jsonl", "mine.jsonl"),
        ("bench/../docs/x.jsonl", "docs/x.jsonl"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_a_path_is_shown_relative_to_the_checkout_or_as_its_name(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RESULTS.parents[1])
    assert portable(text) == shown
