"""The page of the engine itself: its goals won or lost, what a step is made of, its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from nanoserve_bench.perf.arms import RIVALS
from nanoserve_bench.perf.figures import Standing
from nanoserve_bench.perf.files import Perf
from nanoserve_bench.perf.profile import ONE_READ, Profile, ProfileRow
from nanoserve_bench.perf.records import PerfRun
from nanoserve_bench.plan import Fact
from nanoserve_bench.soak.records import Finding, Soak
from nanoserve_bench.soundness.rules.run_ceiling import MARGIN
from nanoserve_report import numbers
from nanoserve_report.book import Book
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts
from nanoserve_report.pages.rerun import Rerun, checkout
from nanoserve_report.study import Study
from nanoserve_report.views import common
from nanoserve_report.views import own as tables

PAGE = "results/engine.md"
BEFORE = "torch, plain products"
KERNEL, INTERPRETER = "torch, packed products", "torch.compile, plain products"
AFTER = "compiled kernels"
UNCOMPILED = "model, not compiled"
MANY = 5
"""A note of so many figures gives their number and not their names."""


def write(book: Book, study: Study) -> None:
    """Add the page; it says so where nothing was measured."""
    linker = book.linker(PAGE)
    own = study.own
    answers = [
        words
        for words, there in (
            ("the goals that this project set itself, won, lost or undecided", own.tables),
            ("where the time of a decode step goes, before and after", own.profiles),
            ("whether the tokens stay the reference's under hostile settings", own.soaks),
        )
        if there
    ]
    book.page(
        PAGE,
        "engine.md.jinja",
        linker,
        lead=_lead(answers),
        refused=own.refused,
        table=_speed(own.tables[0], _with_rivals(study, linker), linker) if own.tables else None,
        profile=_profile(own.profiles[0]) if own.profiles else None,
        soaks=[_soak(soak) for soak in own.soaks],
    )


def _lead(answers: list[str]) -> str:
    """What the page answers, and nothing that it does not."""
    words = "; ".join(answers) or "nothing of the engine itself was measured here so far"
    return f"{words[0].upper()}{words[1:]}."


def _with_rivals(study: Study, linker: Linker) -> str:
    """Where the study has a sweep in which a rival was measured soundly; empty where not."""
    for page in study.devices:
        for section in page.sections:
            if any(cell.cell.arm in RIVALS for cell in section.lead.sound_cells):
                return linker.to(parts.home(page, section), section.slug)
    return ""


def _bound(run: PerfRun, linker: Linker) -> dict[str, str] | None:
    """How far a reading of the memory's rate may be trusted, by the readings of this run."""
    rates = [ceiling.read_bytes_per_s / 1e9 for ceiling in run.ceilings]
    if not rates:
        return None
    return {
        "readings": numbers.count(len(rates), "reading"),
        "low": numbers.significant(min(rates)),
        "high": numbers.significant(max(rates)),
        "margin": numbers.significant(float(MARGIN), 2),
        "href": linker.to(common.rule_page("RUN018")),
    }


def _speed(perf: Perf, rivals: str, linker: Linker) -> dict[str, Any]:
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
        "again": _again(run.revision, run.command),
        "rows": tables.speed(run, perf.figures),
        "bound": _bound(run, linker),
        "rivals": rivals,
        "notes": [
            {
                "id": tables.anchor(number),
                "words": note,
                "figures": "; ".join(titles) if len(titles) < MANY else f"{len(titles)} figures",
            }
            for number, (note, titles) in enumerate(tables.notes(perf.figures), start=1)
        ],
    }


def _where(model: str, threads: int, revision: str | None, facts: tuple[Fact, ...]) -> str:
    known = {fact.name: fact.value for fact in facts}
    words = [model, "float32", str(known.get("cpu_model") or "a CPU without a name")]
    words.append(numbers.count(threads, "thread"))
    if revision is not None:
        words.append(f"revision {revision[:7]}")
    return ", ".join(words)


def _again(revision: str | None, command: str) -> Rerun:
    """What measures it again; folders from before that do not tell their command."""
    return Rerun(
        commands=(*checkout(revision), command) if command else (),
        known="" if command else "The command line was not recorded in this folder.",
        notes=(),
    )


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "setting": _where(profile.model, profile.threads, profile.revision, profile.facts),
        "again": _again(profile.revision, profile.command),
        "sentences": list(sentences(profile)),
        "disturbed": profile.disturbed,
        "pieces": _pieces(profile),
        "rows": tables.phases(profile),
    }


def sentences(profile: Profile) -> Iterator[str]:
    """What each change was worth: another kernel, another interpreter, both in one call.

    Two times with their quartiles and no ratio: one launch of each has no interval for one.
    """
    spent = {
        (row.variant, row.rows, row.phase): row for row in profile.rows if row.seconds is not None
    }
    disturbed = tables.disturbed_variants(profile)
    changes = (
        (KERNEL, "packed weights, and the same Python around every operation,"),
        (INTERPRETER, "torch.compile around the same products,"),
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
            fit = disturbed.isdisjoint((before.variant, after.variant))
            yield (
                f"At {numbers.count(rows, 'row')}, with {words} the forward pass goes from "
                f"{_time(before)} to {_time(after)}" + ("." if fit else "; disturbed: no ratio.")
            )
        after, read = spent.get((AFTER, rows, tables.MODEL)), spent.get((AFTER, rows, ONE_READ))
        if after is not None and read is not None:
            yield (
                f"At {numbers.count(rows, 'row')}, the compiled forward pass takes {_time(after)}, "
                "and one read of as many bytes as the weights have, after each step, "
                f"{_time(read)}" + ("; disturbed." if AFTER in disturbed else ".")
            )


def _time(row: ProfileRow) -> str:
    assert row.seconds is not None  # noqa: S101 - sorted out by the caller
    quartiles = tables.quartiles(row)
    spread = f" ({quartiles})" if quartiles else ""
    return f"{tables.milliseconds(row.seconds)} ms{spread}"


def _pieces(profile: Profile) -> str:
    """Why the pieces of the compiled step do not add up, where they were taken apart."""
    rests = [
        (row.seconds, row.rows)
        for row in profile.rows
        if (row.variant, row.phase) == (AFTER, tables.REST) and row.seconds is not None
    ]
    if not rests:
        return ""
    words = (
        "The compiled step is one call, and its linears, attention and rest are separate "
        "experiments: every matrix multiplied by itself starts a parallel region of its own, which "
        "a step does not, so the linears alone may take longer than the forward pass. The rest is "
        "a difference of such times, and may come out slightly below nothing"
    )
    least, rows = min(rests)
    if least < 0:
        at = numbers.count(rows, "row")
        words += f", as here with {tables.milliseconds(least)} ms at {at}"
    return f"{words}. Read a piece as a size, not to the digit."


def _soak(soak: Soak) -> dict[str, Any]:
    compared = sum(case.requests for case in soak.cases)
    same = sum(case.identical for case in soak.cases)
    words = (
        f"{same:,} of {compared:,} outputs are token for token those of {soak.reference}, over "
        f"{numbers.count(soak.requests, 'prompt')} in {numbers.count(len(soak.cases), 'case')}."
    )
    if not soak.complete:
        words += " It was stopped before its last case."
    unproven = sum(case.finding == Finding.UNPROVEN for case in soak.cases)
    if unproven:
        words += f" {numbers.count(unproven, 'case')} did not do what it is there for: unproven."
    bugs = sum(case.bugs for case in soak.cases)
    return {
        "standing": words,
        "good": bugs == 0 and all(case.finding in tables.GOOD for case in soak.cases),
        "setting": _where(soak.model, soak.threads, soak.revision, soak.facts),
        "again": _again(soak.revision, soak.command),
        "rows": tables.soak(soak),
        "differences": [
            f"{row.case}, request {row.request}: {row.kind}"
            + ("" if row.error is None else f", {row.error}")
            for row in soak.differences
        ],
    }
