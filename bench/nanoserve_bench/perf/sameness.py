"""Whether two arms did the same work: the same tokens, under the same settings.

The settings are judged by the gate's own rules for pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from nanoserve_bench.perf.records import ArmReport, PerfRun, PerfTrial, PrefixDigest
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.schema import token_digest
from nanoserve_bench.soundness.rules.pair_settings import (
    CACHE,
    DECODING,
    MACHINE,
    PRECISION,
    THREADS,
    TOKENIZER,
    WEIGHTS,
)

SETTINGS = (WEIGHTS, PRECISION, THREADS, DECODING, CACHE, MACHINE, TOKENIZER)


def prefix_digests(
    outputs: Sequence[Sequence[int]], counts: Iterable[int]
) -> tuple[PrefixDigest, ...]:
    """Digests of the first so many outputs, for every count that there are outputs for."""
    lines = [token_digest(output) for output in outputs]
    wanted = sorted({count for count in counts if count < len(lines)} | {len(lines)})
    return tuple(
        PrefixDigest(
            requests=count,
            sha256=hashlib.sha256("\n".join(lines[:count]).encode("ascii")).hexdigest(),
        )
        for count in wanted
    )


def disagreement(one: PerfTrial, other: PerfTrial) -> Iterator[str]:
    """Why two trials of one workload did not say the same; nothing where they did."""
    theirs = {digest.requests: digest.sha256 for digest in other.outputs}
    common = [digest for digest in one.outputs if digest.requests in theirs]
    if not common:
        yield f"{one.arm} and {other.arm} have no requests in common whose tokens could be compared"
    for digest in common:
        if digest.sha256 != theirs[digest.requests]:
            yield (
                f"the tokens of {other.arm} ({other.slots} slots) differ from those of {one.arm} "
                f"({one.slots} slots) among the first {digest.requests} requests"
            )
            return


def unlike(run: PerfRun, number: int, one: str, other: str) -> Iterator[str]:
    """What two arms did not share in a round, by the gate's rules."""
    below, above = _settings(run, number, one), _settings(run, number, other)
    for rule in SETTINGS:
        for flaw in rule.check(below, above):
            yield f"{other} against {one}: {rule.code} {flaw.message}"


def _settings(run: PerfRun, number: int, arm: str) -> SystemRun:
    report = _report(run, number, arm)
    return SystemRun(
        system=report.arm, shape=Shape.CONCURRENT, slots=1, records=(), settings=report.settings
    )


def _report(run: PerfRun, number: int, arm: str) -> ArmReport:
    return next(r for r in reversed(run.arms) if (r.round, r.arm) == (number, arm))
