"""Verdicts in Markdown, for the comment on a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nanoserve_bench.plan import Cell
from nanoserve_bench.soundness.verdict import RefusedComparison, SoundComparison, Verdict
from nanoserve_bench.statistics import Estimate

_MOST_FINDINGS = 20
_HOLE = "-"
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|#"})

Pair = SoundComparison | RefusedComparison


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """For a pull request: what may be said in a line, every ratio with its split, what is wrong."""
    return "\n\n".join("\n".join(_lines(verdict)) for verdict in verdicts)


def _lines(verdict: Verdict) -> Iterator[str]:
    red = verdict.unacknowledged
    name = verdict.run_id or verdict.path.name
    yield f"### {_escaped(name)}: {'sound' if verdict.ok else f'refused, {len(red)} finding(s)'}"
    others = [pair for pair in verdict.comparisons if pair.planned.kind != "self"]
    selves = [pair for pair in verdict.comparisons if pair.planned.kind == "self"]
    if others:
        yield f"\n{_summary(others)}"
    if others or selves:
        yield "\n| | against | speedup | batch | per slot-second | verdict |"
        yield "|---|---|--:|--:|--:|---|"
        yield from map(_row, [*others, *selves])
        yield "\nRatios of throughput with 95 % intervals. A thing against itself shows the noise."
    if red:
        yield "\n<details><summary>What is wrong</summary>\n"
        for finding in red[:_MOST_FINDINGS]:
            yield f"- {_escaped(f'{finding.rule} {finding.place}: {finding.message}')}"
        if len(red) > _MOST_FINDINGS:
            yield f"- and {len(red) - _MOST_FINDINGS} more: `nanoserve-bench check` lists them"
        yield "\n</details>"


def _summary(pairs: Sequence[Pair]) -> str:
    """How many comparisons came out how."""
    counts = Counter(
        str(pair.verdict) if isinstance(pair, SoundComparison) else "refused" for pair in pairs
    )
    return ", ".join(f"**{what}** in {n} of {len(pairs)}" for what, n in counts.most_common())


def _row(pair: Pair) -> str:
    if isinstance(pair, SoundComparison):
        figures = (
            _interval(pair.speedup),
            _point(pair.batch_factor),
            _point(pair.slot_factor),
            str(pair.verdict),
        )
    else:
        codes = dict.fromkeys(finding.rule for finding in pair.findings)
        figures = (_HOLE, _HOLE, _HOLE, f"refused by {', '.join(codes)}")
    return f"| {_cell(pair.candidate)} | {_escaped(pair.baseline.arm)} | {' | '.join(figures)} |"


def _cell(cell: Cell) -> str:
    slots = "1 slot" if cell.slots == 1 else f"{cell.slots} slots"
    return _escaped(f"{cell.arm}, {slots}, {cell.workload}, {cell.device} {cell.dtype}")


def _interval(estimate: Estimate) -> str:
    return f"{estimate.point:.3f}x ({estimate.low:.3f} to {estimate.high:.3f})"


def _point(estimate: Estimate | None) -> str:
    return _HOLE if estimate is None else f"{estimate.point:.3f}x"


def _escaped(text: str) -> str:
    return " ".join(text.translate(_SPECIAL).split())
