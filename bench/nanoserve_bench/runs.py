"""From rows back to runs: one `SystemRun` per trial, and which blocks a figure is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from nanoserve_bench.records import RunRecord, Settings, Shape, StepRecord, SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.schema import RequestRow, SystemRow


class TrialKey(NamedTuple):
    """Names one trial of a study."""

    block: int
    cell: str
    warmup: bool


def assemble(results: ResultSet) -> Mapping[TrialKey, SystemRun]:
    """The run of every trial, requests in the order of their rows."""
    launches = {row.launch: row for row in results.systems}
    cells = {cell.id: cell for cell in results.plan.cells}
    requests: dict[TrialKey, list[RequestRow]] = defaultdict(list)
    for row in results.requests:
        requests[TrialKey(row.block, row.cell, row.warmup)].append(row)
    steps: dict[TrialKey, list[tuple[int, StepRecord]]] = defaultdict(list)
    for entry in results.steps:
        record = StepRecord(
            entry.start_ns, entry.prefill_rows, entry.decode_rows, entry.holders, entry.waiting
        )
        steps[TrialKey(entry.block, entry.cell, entry.warmup)].append((entry.step, record))
    runs = {}
    for trial in results.trials:
        key = TrialKey(trial.block, trial.cell, trial.warmup)
        launch = launches[trial.launch]
        log = sorted(steps[key], key=lambda item: item[0]) if key in steps else None
        runs[key] = SystemRun(
            system=launch.system,
            shape=Shape(launch.shape),
            slots=cells[trial.cell].slots,
            records=tuple(_record(results, row) for row in requests[key]),
            settings=_settings(launch),
            steps=None if log is None else tuple(record for _, record in log),
        )
    return runs


def measured_blocks(results: ResultSet) -> tuple[int, ...]:
    """The blocks that figures are made of: all but those that were run again."""
    replaced = {trial.replaces for trial in results.trials}
    return tuple(sorted({trial.block for trial in results.trials} - replaced))


def _settings(row: SystemRow) -> Settings:
    return Settings(
        machine=row.machine,
        device=row.device,
        dtype=row.dtype,
        matmul_precision=row.matmul_precision,
        threads=row.threads,
        weights=row.weights,
        tokenizer=row.tokenizer,
        decoding=row.decoding,
        cache=row.cache,
    )


def _record(results: ResultSet, row: RequestRow) -> RunRecord:
    return RunRecord(
        request=row.request,
        prompt_ids=results.prompts[row.prompt_sha256],
        output_ids=results.outputs[row.output_sha256],
        max_tokens=row.max_tokens,
        arrival_ns=row.arrival_ns,
        submitted_ns=row.submitted_ns,
        holds=row.holds_ns,
        first_token_ns=row.first_token_ns,
        finished_ns=row.finished_ns,
        token_ns=row.token_ns,
        discarded_tokens=row.discarded_tokens,
        cached_tokens=row.cached_tokens,
        finish_reason=row.finish_reason,
        error=row.error or "",
    )
