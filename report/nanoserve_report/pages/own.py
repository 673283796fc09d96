"""The page of the engine itself: its goals won or lost, what a step is made of, its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from nanoserve_bench.perf.figures import Standing
from nanoserve_bench.perf.files import Perf
from nanoserve_bench.perf.profile import Profile
from nanoserve_bench.plan import Fact
from nanoserve_bench.soak.records import Soak
from nanoserve_report import numbers
from nanoserve_report.book import Book
from nanoserve_report.study import Study
from nanoserve_report.views import own as tables

PAGE = "results/engine.md"
BEFORE = "torch, plain products"
KERNEL, INTERPRETER = "torch, packed products", "torch.compile, plain products"
AFTER = "compiled kernels"
UNCOMPILED = "model, not compiled"


def write(book: Book, study: Study) -> None:
    """Add the page; it says so where nothing was measured."""
    linker = book.linker(PAGE)
    own = study.own
    book.page(
        PAGE,
        "engine.md.jinja",
        linker,
        refused=own.refused,
        table=_speed(own.tables[0]) if own.tables else None,
        profile=_profile(own.profiles[0]) if own.profiles else None,
        soaks=[_soak(soak) for soak in own.soaks],
    )


def _speed(perf: Perf) -> dict[str, Any]:
    run = perf.run
    verdicts = Counter(row.verdict for row in perf.figures)
    words = [f"{verdicts[s]} {s}" for s in Standing if verdicts[s] and s != Standing.HOLE]
    holes = [numbers.count(verdicts[Standing.HOLE], "hole")] if verdicts[Standing.HOLE] else []
    standing = numbers.enumerate_words(words + holes)
    unfinished = "" if run.complete else " The run was stopped before its end."
    return {
        "standing": f"Of {len(perf.figures)} figures: {standing}.{unfinished}",
        "good": run.complete and set(verdicts) <= {Standing.MET, Standing.HOLE},
        "setting": _where(run.model, run.threads, run.revision, run.facts),
        "rows": tables.speed(run, perf.figures),
    }


def _where(model: str, threads: int, revision: str | None, facts: tuple[Fact, ...]) -> str:
    known = {fact.name: fact.value for fact in facts}
    words = [model, "float32", str(known.get("cpu_model") or "a CPU without a name")]
    words.append(numbers.count(threads, "thread"))
    if revision is not None:
        words.append(f"revision {revision[:7]}")
    return ", ".join(words)


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "setting": _where(profile.model, profile.threads, profile.revision, profile.facts),
        "sentences": list(sentences(profile)),
        "disturbed": profile.disturbed,
        "rows": tables.phases(profile),
    }


def sentences(profile: Profile) -> Iterator[str]:
    """What each change was worth: another kernel, another interpreter, both in one call."""
    spent = {
        (row.variant, row.rows, row.phase): row.seconds
        for row in profile.rows
        if row.seconds is not None
    }
    changes = (
        (KERNEL, "packed weights, and the same Python around every operation,"),
        (INTERPRETER, "torch.compile around the same products"),
        (AFTER, "the compiled kernels, one call for a step,"),
    )
    for rows in sorted({rows for _, rows, _ in spent}):
        for variant, words in changes:
            # What was compiled has the same pass, not compiled, beside it in the same process.
            own = spent.get((variant, rows, UNCOMPILED))
            before = own or spent.get((BEFORE, rows, tables.MODEL))
            after = spent.get((variant, rows, tables.MODEL))
            if before is None or after is None:
                continue
            yield (
                f"At {numbers.count(rows, 'row')}, with {words} the forward pass goes from "
                f"{numbers.significant(before * 1e3)} to {numbers.significant(after * 1e3)} ms: "
                f"{numbers.significant(before / after)}{numbers.TIMES}."
            )


def _soak(soak: Soak) -> dict[str, Any]:
    compared = sum(case.requests for case in soak.cases)
    same = sum(case.identical for case in soak.cases)
    words = (
        f"{same:,} of {compared:,} outputs are token for token those of {soak.reference}, over "
        f"{numbers.count(soak.requests, 'prompt')} in {numbers.count(len(soak.cases), 'case')}."
    )
    if not soak.complete:
        words += " It was stopped before its last case."
    bugs = sum(case.bugs for case in soak.cases)
    return {
        "standing": words,
        "good": bugs == 0 and all(case.finding in tables.GOOD for case in soak.cases),
        "setting": _where(soak.model, soak.threads, soak.revision, soak.facts),
        "rows": tables.soak(soak),
        "differences": [
            f"{row.case}, request {row.request}: {row.kind}"
            + ("" if row.error is None else f", {row.error}")
            for row in soak.differences
        ],
    }
