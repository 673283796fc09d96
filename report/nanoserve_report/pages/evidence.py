"""Refusals, rules, environment, A/A and the quoted claims: what the numbers rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nanoserve_bench.schema import DivergenceRow
from nanoserve_bench.soundness import RULES, Rule, RuleOutcome
from nanoserve_bench.soundness.kills import kill_table
from nanoserve_report import backing, claims, numbers, source, wording
from nanoserve_report.book import Book
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts, runs
from nanoserve_report.setting import slug
from nanoserve_report.study import Study
from nanoserve_report.sweeps import Folder
from nanoserve_report.tables import Cell, Column, Table, Text, text_columns
from nanoserve_report.views import common, environment, kills
from nanoserve_report.views import overview as tables

Judged = Sequence[tuple[Folder, tuple[RuleOutcome, ...]]]
"""Folders, newest first, with what every rule did to them."""


def write(book: Book, study: Study) -> None:
    """Add them."""
    _refusals(book, study)
    _rules(book, study)
    _environment(book, study)
    _self(book, study)
    _claims(book, study)


def _refusals(book: Book, study: Study) -> None:
    linker = book.linker(common.REFUSALS)
    refused = [folder for folder in reversed(study.folders) if folder.verdict.findings]
    total = sum(len(folder.verdict.findings) for folder in refused)
    if refused:
        lead = (
            f"{numbers.count(total, 'finding').capitalize()} in "
            f"{numbers.count(len(refused), 'folder')}. No ratio, speedup or rate of what was "
            "refused is stated as a result anywhere on this site; a finding may name the quantity "
            "that failed its rule."
        )
    elif study.folders:
        lead = "Nothing was refused in any folder."
    else:
        lead = "No results folder was found, so there was nothing to refuse."
    book.page(
        common.REFUSALS,
        "refusals.md.jinja",
        linker,
        lead=lead,
        folders=[_refused_folder(folder, linker) for folder in refused],
        skipped=study.skipped,
        beside=wording.beside(study),
        untried=wording.untried(study),
    )


def _refused_folder(folder: Folder, linker: Linker) -> dict[str, Any]:
    return {
        "name": folder.name,
        "anchor": slug(folder.name),
        "tone": parts.tone(folder),
        "status": folder.status.value.capitalize(),
        "href": linker.to(common.run_page(folder.name)),
        "acknowledged": runs.acknowledged(folder.verdict.acknowledged),
        "stamp": runs.stamp(folder),
        "findings": tables.findings(folder.verdict.findings, linker),
        "divergences": _divergences(folder),
    }


def _divergences(folder: Folder) -> Table | None:
    rows = () if folder.results is None else folder.results.divergences
    if not rows:
        return None
    return Table(
        caption="First divergences, as the sweep recorded them with the model at hand",
        columns=text_columns(
            "cell", "class", "place", "token", "reference's token", "top-2 margin", "noise floor",
            "later agreement",
        ),
        rows=tuple(_divergence(row) for row in rows),
        prose=True,
    )  # fmt: skip


def _divergence(row: DivergenceRow) -> tuple[Cell, ...]:
    return (
        Text(text=f"{row.cell} against {row.reference_cell}"),
        Text(text=row.kind),
        Text(text=f"block {row.block}, request {row.request}, position {row.position}"),
        _token(row.token_id, row.text),
        _token(row.reference_token_id, row.reference_text),
        common.optional(row.top2_margin),
        common.optional(row.noise_floor),
        common.optional(row.later_agreement),
    )


def _token(token_id: int | None, text: str | None) -> Cell:
    if token_id is None:
        return common.optional(None, "the stream ended")
    return Text(text=f"{token_id} {text!r}" if text is not None else str(token_id))


def _rules(book: Book, study: Study) -> None:
    path = "results/rules/index.md"
    linker = book.linker(path)
    book.page(path, "rules.md.jinja", linker, table=tables.rule_table(tuple(RULES), linker))
    judged = [(folder, backing.outcomes(folder)) for folder in reversed(study.folders)]
    for rule in RULES:
        page = common.rule_page(rule.code)
        own = book.linker(page)
        book.page(
            page,
            "rule.md.jinja",
            own,
            rule=rule,
            outcomes=_outcomes(judged, rule, own),
            mutants=kills.of_rule(kill_table().of(rule.code)),
            kills=own.to(common.KILLS, rule.family),
        )


def _outcomes(judged: Judged, rule: Rule, linker: Linker) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for folder, outcomes in judged:
        name = Text(text=folder.name, href=linker.to(common.run_page(folder.name)))
        outcome = next((o for o in outcomes if o.code == rule.code), None)
        if outcome is None:
            hole = common.optional(None, "the folder could not be read so far")
            rows.append((name, hole, hole))
            continue
        href = linker.to(common.REFUSALS, slug(folder.name)) if outcome.findings else ""
        rows.append((name, common.whole(outcome.examined), common.outcome(outcome, href)))
    return Table(
        caption="What this rule examined and found",
        columns=(
            Column(label="run", numeric=False),
            Column(label="examined", unit="items"),
            Column(label="result", numeric=False),
        ),
        rows=tuple(rows),
    )


def _environment(book: Book, study: Study) -> None:
    path = "results/environment.md"
    linker = book.linker(path)
    readable = [folder for folder in reversed(study.folders) if folder.results is not None]
    book.page(
        path,
        "environment.md.jinja",
        linker,
        versions=bool(readable) and environment.versions(readable, linker),
        machines=[
            {
                "name": f"Machine {name.removeprefix('sha256:')[:8]}",
                "anchor": slug(f"machine-{name.removeprefix('sha256:')[:8]}"),
                "shared": shared,
                "differing": differing or False,
            }
            for name, shared, differing in environment.machines(readable)
        ],
    )


def _self(book: Book, study: Study) -> None:
    path = "results/self.md"
    linker = book.linker(path)
    book.page(
        path,
        "self.md.jinja",
        linker,
        table=tables.self_table(study, linker),
        timing=wording.timing_costs(study),
    )


def _claims(book: Book, study: Study) -> None:
    path = "results/claims.md"
    section = claims.section_of(study)
    sweep = None if section is None else section.lead
    book.page(
        path,
        "claims.md.jinja",
        book.linker(path),
        source=source,
        setting="" if sweep is None else f"{parts.setting_line(sweep)} {sweep.device_name}.",
        items=[
            {
                "name": claim.name,
                "anchor": slug(claim.name),
                "quote": claim.quote,
                "rule": claim.rule,
                "word": claim.word,
                "finding": claim.finding,
                "mark": common.MARKS[claim.word],
                "tone": common.TONES.get(claim.word, "muted"),
            }
            for claim in claims.judge(study)
        ],
        doublings=tables.quoted_doublings(sweep),
        sweep=tables.quoted_sweep(sweep),
    )
