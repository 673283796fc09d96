"""What a mutant is, and the breaking that several families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nanoserve_bench.plan import Blocks
from nanoserve_bench.schema import token_digest
from support.rebuild import BASE, change, engine, measured, replace, rerun, set_plan
from support.sound import Study, study


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A sound folder with one thing broken.

    Attributes:
        name: Unique.
        rule: Code of the rule that must refuse it.
        story: What was done, in one sentence.
        make: Builds the study before it is written.
        after: Breaks the written folder.
    """

    name: str
    rule: str
    story: str
    make: Callable[[], Study] = study
    after: Callable[[Path], object] | None = None

    def write(self, path: Path) -> Path:
        """Write the broken folder."""
        self.make().write(path)
        if self.after is not None:
            self.after(path)
        return path


def other_output(
    broken: Study, cell: str, request: str, edit: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Study:
    """Point one request of block 1 to another output."""
    block = broken.blocks[1]
    lists = {token_digest(ids): ids for ids in block.outputs}
    row = next(r for r in block.requests if measured(cell, request)(r))
    ids = edit(lists[row.output_sha256])
    broken.blocks[1] = replace(block, outputs=(*block.outputs, ids))
    return change(
        broken,
        "requests",
        cell=cell,
        request=request,
        blocks=[1],
        output_sha256=token_digest(ids),
    )


def altered_token(position: int = 5) -> Study:
    return other_output(
        study(), engine(4), "r3", lambda ids: (*ids[:position], 7, *ids[position + 1 :])
    )


def prompts(
    broken: Study,
    edit: Callable[[int, tuple[int, ...]], tuple[int, ...]],
    *,
    cells: Callable[[str], bool] = lambda _: True,
    blocks: Sequence[int] = (3,),
    count_again: bool = True,
) -> Study:
    """Give the measured requests of some cells other prompts, `edit(request number, ids)`."""
    for index in blocks:
        block = broken.blocks[index]
        lists = {token_digest(ids): ids for ids in block.prompts}
        new: list[tuple[int, ...]] = []

        def edited(row: Any, lists: Any = lists, new: Any = new) -> Any:
            ids = edit(int(row.request[1:]), lists[row.prompt_sha256])
            new.append(ids)
            count = len(ids) if count_again else row.prompt_tokens
            return replace(row, prompt_sha256=token_digest(ids), prompt_tokens=count)

        broken.edit(
            "requests",
            edited,
            where=lambda row: not row.warmup and cells(row.cell),
            blocks=[index],
        )
        prompts = (*broken.blocks[index].prompts, *new)
        broken.blocks[index] = replace(broken.blocks[index], prompts=prompts)
    return broken


def drop_request(cells: Callable[[str], bool]) -> Study:
    broken = study()
    broken.edit(
        "requests",
        lambda _: None,
        where=lambda row: not row.warmup and row.request == "r7" and cells(row.cell),
        blocks=[0],
    )
    return broken


def short_outputs(cells: Sequence[str], *, asked: bool) -> Study:
    """Outputs of 15 tokens in place of 16, whether 15 or 16 were asked for."""
    broken = rerun(
        study(),
        cells,
        step_ms=lambda trial, rows: 34.0 + 3 * rows if "nanoserve" in trial.cell else 62.0,
        outputs=lambda _, ids: ids[:15],
    )
    if not asked:
        for cell in cells:
            change(broken, "requests", cell=cell, max_tokens=16)
    return broken


def stopping(least: int, most: int, *, there: int, target: float | None = None) -> Study:
    broken = study(blocks=there)
    rules = Blocks(least=least, most=most, target_half_width=target, most_reruns=2)
    return set_plan(broken, blocks=rules)


def ledger(*starts: dict[str, Any]) -> Study:
    """A ledger of these starts, each given by what differs from the sound one.

    A start begins a second before the first trial of its first block, unless it says otherwise.
    """
    broken = study()
    (only,) = broken.starts
    begun = [min(row.started_at for row in block.trials) for block in broken.blocks]
    for place, start in enumerate(starts):
        first = start.get("first_block", 0)
        if place and first < len(begun):
            at = datetime.fromisoformat(begun[first]) - timedelta(seconds=1)
            start.setdefault("started_at", at.isoformat())
        elif place:
            start.setdefault("started_at", "2026-01-02T00:00:00+00:00")
    broken.starts = [replace(only, **start) for start in starts]
    return broken


def replaced(disturbed: bool, count: int = 1) -> Study:
    """The last blocks replace the first ones."""
    kept = study(blocks=8 + count)
    set_plan(kept, blocks=Blocks(least=8, most=8, target_half_width=None, most_reruns=2))
    for number in range(count):
        kept.edit(
            "trials",
            lambda row, number=number: replace(row, replaces=number),
            where=lambda row, number=number: row.block == 8 + number,
        )
        if disturbed:
            change(kept, "trials", cell=BASE, blocks=[number], other_cpu_ns=4 * 10**9)
    return kept


def mutants_of(rule: str, *entries: tuple[Any, ...]) -> list[Mutant]:
    made = []
    for name, story, make, *after in entries:
        made.append(
            Mutant(
                name=name,
                rule=rule,
                story=story,
                make=make or study,
                after=after[0] if after else None,
            )
        )
    return made
