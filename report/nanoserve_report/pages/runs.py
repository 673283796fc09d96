"""One page per results folder, with everything that was looked at, and the raw files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nanoserve_bench.plan import Blocks
from nanoserve_bench.results import MANIFEST, PLAN, ResultSet
from nanoserve_bench.schema import ROW_TYPES
from nanoserve_bench.soundness import Acknowledged, RuleOutcome
from nanoserve_report import archive, backing, noise, numbers
from nanoserve_report.book import Book
from nanoserve_report.figures import blocks
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts, rerun
from nanoserve_report.setting import slug
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Folder, Sweep
from nanoserve_report.views import common
from nanoserve_report.views import folder as tables
from nanoserve_report.views import overview as overview_tables
from nanoserve_report.views import sweep as sweep_tables

CONTRACT = (PLAN, MANIFEST, *(row_type.FILE for row_type in ROW_TYPES))


def write(book: Book, study: Study) -> None:
    """Add the page and the raw files of every folder, and their index."""
    linker = book.linker(common.RUNS)
    book.page(common.RUNS, "runs.md.jinja", linker, folders=overview_tables.folders(study, linker))
    for folder in study.folders:
        _page(book, folder)


def _page(book: Book, folder: Folder) -> None:
    path = common.run_page(folder.name)
    linker = book.linker(path)
    verdict, outcomes = folder.verdict, backing.outcomes(folder)
    stem = path.removesuffix(".md")
    packed = f"{stem}/data/{slug(folder.name)}.zip"
    held = _files(folder)
    for name, content in held.items():
        book.add(f"{stem}/data/{name}", content)
    if held:
        book.add(packed, archive.packed(folder.name, held))
    shown = folder.retraction is None
    book.page(
        path,
        "run.md.jinja",
        linker,
        name=folder.name,
        tone=parts.tone(folder),
        stamp=stamp(folder),
        status=folder.status.value,
        summary=summary(folder, outcomes),
        facts_line=facts_line(folder),
        again=rerun.of(folder) or False,
        findings=overview_tables.findings(verdict.findings, linker) if verdict.findings else False,
        acknowledged=acknowledged(verdict.acknowledged),
        holes=holes(folder),
        sweeps=[_sweep(book, sweep, linker) for sweep in folder.sweeps],
        rules=tables.rules(outcomes, linker),
        machine=(False if folder.results is None else tables.facts(folder.results.manifest.facts)),
        sides=tables.sides(folder),
        ceilings=shown and tables.ceilings(folder),
        ledger=tables.ledger(folder),
        contention=shown and tables.contention(folder),
        files=tables.files(folder, linker, tuple(held)) if held else False,
        archive=linker.to(packed) if held else "",
    )


def stamp(folder: Folder) -> dict[str, Any] | None:
    """Which rules took the numbers of a folder away, and the reason where it was retracted."""
    if folder.retraction is not None:
        return {"word": "Retracted", "rules": [folder.retraction.rule],
                "reason": folder.retraction.reason}  # fmt: skip
    rules = list(dict.fromkeys(finding.rule for finding in folder.refusing))
    return {"word": "Refused", "rules": rules, "reason": ""} if rules else None


def summary(folder: Folder, outcomes: tuple[RuleOutcome, ...]) -> str:
    """What was examined, and the first thing to do where something is wrong."""
    verdict = folder.verdict
    examined = sum(outcome.examined for outcome in outcomes)
    words = (
        f"{numbers.count(len(outcomes), 'rule')} examined {examined:,} items and reported "
        f"{numbers.count(len(verdict.findings), 'finding')}."
    )
    first = next(iter(folder.refusing), None)
    hint = "" if first is None or not first.hint else f" First: {first.hint}"
    return f"{words}{hint}"


def facts_line(folder: Folder) -> str:
    """The plan in one line."""
    plan = folder.plan
    if plan is None or folder.results is None:
        return ""
    revision = "an unknown revision" if plan.revision is None else f"revision {plan.revision[:12]}"
    dirty = " with uncommitted changes" if plan.dirty else ""
    return (
        f"Planned {plan.created_at} at {revision}{dirty}; seed {plan.seed}; orders of all blocks "
        f"fixed beforehand; stopping rule: {stopping_rule(plan.blocks)}; "
        f"{numbers.count(folder.results.manifest.blocks_done, 'block')} done"
        f"{_run_again(folder.results)}; "
        f"{numbers.count(len(folder.results.manifest.ledger), 'start')} in the ledger."
    )


def stopping_rule(blocks: Blocks) -> str:
    """What the plan declared, in words."""
    again = f"at most {numbers.count(blocks.most_reruns, 'contended block')} run again"
    if blocks.target_half_width is None:
        return f"{numbers.count(blocks.most, 'block')}, {again}"
    return (
        f"{blocks.least} to {numbers.count(blocks.most, 'block')}, until the widest headline "
        f"interval reaches {100 * blocks.target_half_width:g} % to each side, {again}"
    )


def _run_again(results: ResultSet) -> str:
    """Which blocks were run again for contention; empty where none was."""
    replaced = sorted({t.replaces for t in results.trials if t.replaces is not None})
    if not replaced:
        return ""
    listed = numbers.enumerate_words([str(block) for block in replaced])
    return f", of which {'block' if len(replaced) == 1 else 'blocks'} {listed} run again"


def acknowledged(entries: tuple[Acknowledged, ...]) -> list[dict[str, str]]:
    """The refusals that the plan expected, with their reasons."""
    return [
        {
            "rule": entry.refusal.rule,
            "cell": entry.refusal.cell,
            "reason": entry.refusal.reason,
        }
        for entry in entries
    ]


def holes(folder: Folder) -> list[dict[str, str]]:
    """The arms that were asked for and could not run, with their reasons."""
    skipped = folder.plan.skipped_arms if folder.plan else ()
    return [
        {
            "arm": hole.arm,
            "where": ", ".join(filter(None, (hole.device, hole.dtype, *hole.workloads))),
            "reason": hole.reason,
        }
        for hole in skipped
    ]


def _sweep(book: Book, sweep: Sweep, linker: Linker) -> dict[str, Any]:
    setting = sweep.setting
    anchor = slug(f"{setting.device}-{setting.dtype}-{setting.workload}")
    return {
        "title": f"{parts.device_title(setting.device, setting.dtype)}, {setting.workload}",
        "anchor": anchor,
        "throughput": sweep_tables.throughput(sweep, linker).at(f"{anchor}-throughput"),
        "doublings": sweep_tables.doublings(sweep, linker).at(f"{anchor}-doublings"),
        "factors": sweep_tables.factors(sweep, linker).at(f"{anchor}-factors"),
        "latency_ratios": sweep_tables.latency_ratios(sweep, linker).at(f"{anchor}-latency-ratios"),
        "spread": noise.trials(sweep),
        "blocks": bool(sweep.comparisons)
        and book.figure(blocks.draw, sweep, stem=f"{slug(sweep.name)}-{anchor}", linker=linker),
        "trials": tables.trials(sweep, linker),
    }


def _files(folder: Folder) -> dict[str, bytes]:
    """The folder's own files as they are; whatever is not a regular file stays out."""
    root: Path = folder.verdict.path
    return {
        name: (root / name).read_bytes()
        for name in CONTRACT
        if not root.is_symlink() and not (root / name).is_symlink() and (root / name).is_file()
    }
