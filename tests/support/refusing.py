"""A published folder once more, but for one token of one rival: what real pages make of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.schema import DivergenceRow, token_digest
from nanoserve_bench.summary import summarise
from nanoserve_bench.writer import BlockRows, ResultsWriter

RUN_ID = "20261201-cpu-rivals-582a871"
REFUSED_CELL = "openvino/cpu/float32/8/day44"
REFERENCE_CELL = "hf-generate/cpu/float32/1/day44"
BLOCK, REQUEST, POSITION = 2, 3, 7


def one_token_off(source: Path, root: Path) -> Path:
    """The study in `source` under another name, with one other token in one trial of a rival."""
    results = read(source)
    plan = dataclasses.replace(results.plan, run_id=RUN_ID)
    folder = root / RUN_ID
    writer = ResultsWriter.create(
        folder, plan, machine=results.manifest.machine, facts=results.manifest.facts
    )
    for start in results.manifest.ledger:
        writer.record_start(dataclasses.replace(start, outcome="running"))
    for block in sorted({trial.block for trial in results.trials}):
        writer.write_block(_diverged(_rows(results, block)))
    writer.finish(summarise(read(folder, require_complete=False)))
    return folder


def _rows(results: ResultSet, block: int) -> BlockRows:
    requests = tuple(row for row in results.requests if row.block == block)
    said = [row.output_sha256 for row in requests if row.output_sha256]
    return BlockRows(
        systems=tuple(row for row in results.systems if row.block == block),
        ceilings=tuple(row for row in results.ceilings if row.block == block),
        trials=tuple(row for row in results.trials if row.block == block),
        requests=requests,
        steps=tuple(row for row in results.steps if row.block == block),
        prompts=tuple(results.prompts[row.prompt_sha256] for row in requests),
        outputs=tuple(results.outputs[sha256] for sha256 in said),
        divergences=tuple(row for row in results.divergences if row.block == block),
    )


def _diverged(rows: BlockRows) -> BlockRows:
    """The rows with another token in the output of one request, triaged as a near-tie."""
    mine = [r for r in rows.requests if r.cell == REFUSED_CELL and not r.warmup]
    if not mine or mine[0].block != BLOCK:
        return rows
    changed = mine[REQUEST]
    said = next(ids for ids in rows.outputs if token_digest(ids) == changed.output_sha256)
    other = (*said[:POSITION], said[POSITION] + 1, *said[POSITION + 1 :])
    return dataclasses.replace(
        rows,
        outputs=(*rows.outputs, other),
        requests=tuple(
            dataclasses.replace(row, output_sha256=token_digest(other)) if row is changed else row
            for row in rows.requests
        ),
        divergences=(
            DivergenceRow(
                block=BLOCK,
                cell=REFUSED_CELL,
                reference_cell=REFERENCE_CELL,
                request=changed.request,
                position=POSITION,
                token_id=other[POSITION],
                reference_token_id=said[POSITION],
                text='" blue"',
                reference_text='" red"',
                logit=17.0312,
                reference_logit=17.0315,
                top2_margin=0.0003,
                noise_floor=0.0011,
                later_agreement=1.0,
                kind="near-tie",
            ),
        ),
    )
