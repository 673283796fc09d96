"""The gate on runs at hand, without a folder: the two shapes, and the fair comparison of two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.errors import RunUnsound, UnfairComparison
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.soundness.catalogue import PAIR_RULES, RUN_RULES
from nanoserve_bench.soundness.rule import Flaw, Rule, RunRule
from nanoserve_bench.soundness.rules.pair_work import TOKENS, tokens_between
from nanoserve_bench.soundness.rules.run_load import OFFERED, load_flaws
from nanoserve_bench.soundness.rules.run_requests import EMPTY
from nanoserve_bench.soundness.rules.run_shape import (
    CONCURRENT_BATCHES,
    SERIAL_IDLE,
    SERIAL_OVERLAP,
    SLOTS_EXCEEDED,
)
from nanoserve_bench.soundness.rules.run_stamps import IN_ORDER, PRESENT


def check_serial(run: SystemRun) -> None:
    """Refuse a run that was not one request after the other, without overlap and without idling.

    Raises:
        RunUnsound: With everything that is wrong.
    """
    _check_shape(run, Shape.SERIAL, (SERIAL_OVERLAP, SERIAL_IDLE))


def check_concurrent(run: SystemRun) -> None:
    """Refuse a run that never batched, although its slots and requests allow two rows.

    Reads the batch occupancy. The system occupancy counts the queue: eight requests in one slot
    read 4.83 there, and no row ever had company. A run that was asked for one slot is accepted.

    Raises:
        RunUnsound: With everything that is wrong.
    """
    _check_shape(run, Shape.CONCURRENT, (CONCURRENT_BATCHES,))


def check_offered_load(run: SystemRun, due_ns: Sequence[int] | None = None) -> None:
    """Refuse an open-loop run that did not arrive as offered, or was one at a time after all.

    Args:
        run: The run; its arrivals are stamped by when requests were due.
        due_ns: When each request was due, ns after the first; None where nobody says, and then
            the arrival stamps are believed.

    Raises:
        RunUnsound: With everything that is wrong.
    """
    lines = list(_lines((EMPTY, PRESENT, IN_ORDER, SLOTS_EXCEEDED), run))
    lines += [_line(OFFERED, flaw) for flaw in load_flaws(run, due_ns)]
    if lines:
        raise RunUnsound("\n".join(f"{run.system}: {line}" for line in lines))


def compare(baseline: SystemRun, candidate: SystemRun) -> Comparison:
    """Split the candidate's speedup over the baseline into exact factors, if the pair is sound.

    Raises:
        RunUnsound: A run does not measure what it claims; the message has every finding.
        UnfairComparison: Both runs are sound and did not do the same work under the same
            conditions; the message has every finding.
    """
    runs = [
        f"{side} {line}"
        for side, run in (("baseline", baseline), ("candidate", candidate))
        for line in _lines(RUN_RULES, run)
    ]
    pair = [_line(rule, flaw) for rule in PAIR_RULES for flaw in rule.check(baseline, candidate)]
    pair += [_line(TOKENS, flaw) for flaw in tokens_between(baseline, candidate)]
    if runs:
        raise RunUnsound("\n".join([*runs, *pair]))
    if pair:
        raise UnfairComparison("\n".join(pair))
    return Comparison.of(baseline, candidate)


def _check_shape(run: SystemRun, shape: Shape, rules: tuple[RunRule, ...]) -> None:
    lines = list(_lines((EMPTY, PRESENT, IN_ORDER, SLOTS_EXCEEDED, *rules), run))
    if run.shape is not shape:
        lines.insert(0, f"the run is {run.shape.value}, not {shape.value}")
    if lines:
        raise RunUnsound("\n".join(f"{run.system}: {line}" for line in lines))


def _lines(rules: Iterable[RunRule], run: SystemRun) -> Iterator[str]:
    for rule in rules:
        try:
            if rule.exempt(run) is None:
                for flaw in rule.check(run):
                    yield _line(rule, flaw)
        except Exception as error:  # noqa: BLE001 - fail closed, as in the judge
            yield f"{rule.code} {rule.name}: could not be applied: {type(error).__name__}: {error}"


def _line(rule: Rule, flaw: Flaw) -> str:
    return f"{rule.code} {rule.name}: {flaw.message}"
