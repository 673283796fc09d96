"""Every rule, in the order of their codes. A code is never used for another rule."""

from __future__ import annotations

from nanoserve_bench.soundness.acknowledgement import ACKNOWLEDGED
from nanoserve_bench.soundness.rule import PairRule, Rule, RunRule
from nanoserve_bench.soundness.rules import (
    pair_libraries,
    pair_settings,
    pair_work,
    report_cells,
    report_form,
    report_plan,
    report_summary,
    run_cache,
    run_ceiling,
    run_copies,
    run_ids,
    run_launches,
    run_load,
    run_prompts,
    run_requests,
    run_rows,
    run_shape,
    run_stamps,
    run_steps,
    run_tokens,
    run_wall,
    stat_blocks,
    stat_contention,
    stat_ledger,
    stat_order,
    stat_self,
    stat_settled,
)

RULES: tuple[Rule, ...] = (
    run_requests.EMPTY,
    run_requests.FAILED,
    run_stamps.PRESENT,
    run_stamps.AS_DECLARED,
    run_stamps.IN_ORDER,
    run_requests.OUTPUT_AS_ASKED,
    run_requests.COUNTS_MATCH,
    run_requests.EOS,
    run_shape.SLOTS_EXCEEDED,
    run_shape.SERIAL_OVERLAP,
    run_shape.SERIAL_IDLE,
    run_shape.CONCURRENT_BATCHES,
    run_steps.STEP_LOG,
    run_wall.WALL,
    run_prompts.DISTINCT,
    run_prompts.FRESH,
    run_copies.COPIES,
    run_ceiling.CEILING,
    run_cache.CACHE,
    run_launches.AS_PLANNED,
    run_launches.CONSTANT,
    run_tokens.TOKENS_FROM_STEPS,
    run_load.OFFERED,
    run_ids.IDS,
    run_rows.ROWS,
    pair_work.REQUEST_COUNT,
    pair_work.PROMPTS,
    pair_work.PROMPT_LENGTHS,
    pair_work.OUTPUT_LENGTHS,
    pair_work.TOKENS,
    pair_settings.WEIGHTS,
    pair_settings.PRECISION,
    pair_settings.THREADS,
    pair_settings.DECODING,
    pair_settings.CACHE,
    pair_settings.MACHINE,
    pair_settings.TOKENIZER,
    pair_libraries.LIBRARIES,
    stat_blocks.ENOUGH,
    stat_order.ORDER,
    stat_settled.SETTLED,
    stat_contention.CONTENTION,
    stat_self.SELF,
    stat_ledger.LEDGER,
    stat_blocks.STOPPING,
    *report_form.READ_RULES,
    report_cells.CELLS,
    report_plan.PLAN_UNCHANGED,
    report_summary.SUMMARY,
    ACKNOWLEDGED,
    report_form.PAGES,
    report_form.ASSEMBLES,
)
CODES: tuple[str, ...] = tuple(rule.code for rule in RULES)
RUN_RULES: tuple[RunRule, ...] = tuple(rule for rule in RULES if isinstance(rule, RunRule))
PAIR_RULES: tuple[PairRule, ...] = tuple(rule for rule in RULES if isinstance(rule, PairRule))


def rule_of(code: str) -> Rule | None:
    """The rule of a code, in any case; None where there is none."""
    return next((rule for rule in RULES if rule.code == code.upper()), None)
