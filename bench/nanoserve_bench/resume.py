"""Whether a stopped sweep may go on: what stands in its folder, and what has changed since."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from nanoserve_bench import documents
from nanoserve_bench.errors import PlanError
from nanoserve_bench.faults import shorten
from nanoserve_bench.plan import Fact, Manifest, Plan
from nanoserve_bench.results import MANIFEST, PLAN

T = TypeVar("T")

SAME_FACTS = ("sources", "threads", "model_source")
"""Facts that a sweep must find again to go on; the rest may change (a kernel update may not
matter, and is recorded)."""
_OF_A_START = frozenset({"run_id", "created_at", "revision", "dirty"})
"""What differs between two starts of one plan, on other days or on other code."""


def stored(folder: Path) -> tuple[Plan, Manifest]:
    """Plan and manifest of a folder that may have been cut off.

    Raises:
        PlanError: One of them is missing or damaged.
    """
    plan, manifest = _document(Plan, folder / PLAN), _document(Manifest, folder / MANIFEST)
    return plan, manifest


def _document(record_type: type[T], path: Path) -> T:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read: {error}") from error
    record = documents.decode(record_type, text, path.name)
    if isinstance(record, Sequence):
        raise PlanError(f"{path} is damaged: {'; '.join(map(str, record))}")
    return record


def plan_differences(stored_plan: Plan, plan: Plan) -> Iterator[str]:
    """Where two plans differ, but for the time at which they were made."""
    for field in dataclasses.fields(Plan):
        before, now_ = getattr(stored_plan, field.name), getattr(plan, field.name)
        if field.name != "created_at" and before != now_:
            yield f"{field.name}: {shorten(str(before))}, now {shorten(str(now_))}"


def unfinished(out: Path, plan: Plan) -> Path | None:
    """The folder of a sweep of this plan that was stopped, whenever and on whatever code.

    One of the same revision comes first, then the youngest. Whether it may go on is decided when
    it is started: on other code or another machine it may not, and `Sweep.run` says so.
    """
    found = []
    for folder in out.glob("[!.]*") if out.is_dir() else ():  # a name with a dot is half made
        try:
            known, manifest = stored(folder)
        except PlanError:
            continue  # no results folder, or a damaged one: nothing to go on with
        if not manifest.complete and all(
            getattr(known, field.name) == getattr(plan, field.name)
            for field in dataclasses.fields(Plan)
            if field.name not in _OF_A_START
        ):
            found.append((known.revision == plan.revision, known.created_at, folder))
    return max(found)[-1] if found else None


def machine_differences(manifest: Manifest, machine: str, facts: Sequence[Fact]) -> Iterator[str]:
    """Where machine, code or model differ from those that a folder was started on."""
    if manifest.machine != machine:
        yield f"machine: {manifest.machine}, now {machine}"
    before = {fact.name: fact.value for fact in manifest.facts}
    for fact in facts:
        if fact.name in SAME_FACTS and before.get(fact.name) != fact.value:
            yield f"{fact.name}: {before.get(fact.name)}, now {fact.value}"
