"""What the what-if page may offer: what the gate found comparable, and nothing else."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

from nanoserve_bench.soundness import RefusedComparison, RefusedMarginal
from nanoserve_report import whatif
from nanoserve_report.book import Book
from nanoserve_report.pages import compose
from nanoserve_report.study import Study, load
from support.report_studies import sweep, write
from support.sound import DAY44


def rows(book: Book, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(book.files[f"results/what-if/{name}"].decode())))


def test_a_refused_pair_is_not_offered(refused: Study, refused_book: Book) -> None:
    sweep = refused.sections[0].lead
    offered = {(row["candidate"], row["baseline"]) for row in rows(refused_book, "pairs.csv")}
    refusals = [
        (pair.candidate.id, pair.baseline.id)
        for pair in sweep.comparisons
        if isinstance(pair, RefusedComparison)
    ] + [(m.upper.id, m.lower.id) for m in sweep.marginals if isinstance(m, RefusedMarginal)]
    assert len(refusals) == 3
    assert not offered & set(refusals)
    assert len(offered) == len(sweep.comparisons) + len(sweep.marginals) - len(refusals)


def test_the_trials_are_the_integers_that_were_stamped(one: Study, one_book: Book) -> None:
    sweep = one.sections[0].lead
    found = rows(one_book, f"{sweep.name}.csv")
    assert len(found) == sum(len(cell.runs) for cell in sweep.sound_cells)
    for cell in sweep.sound_cells:
        for row in (row for row in found if row["cell"] == cell.cell.id):
            run = cell.runs[int(row["block"])]
            assert row["output_tokens"] == str(run.output_tokens)
            assert row["wall_ns"] == str(run.wall_ns)
            assert row["served_ns"] == str(run.served_ns)


def test_where_nothing_is_offered_the_page_says_so() -> None:
    book = compose(Study(folders=()))
    text = book.files["results/what-if.md"].decode()
    assert "no pair was found comparable" in text
    assert "<script" not in text


def test_pairs_whose_slots_mean_two_things_are_told_apart(one: Study, tmp_path: Path) -> None:
    changed = sweep()
    changed.edit(
        "systems",
        lambda row: dataclasses.replace(row, stamps="holds=connection first_token tokens steps"),
        where=lambda row: row.system == "nanoserve",
    )
    mixed = load(write(tmp_path, changed))
    for study, told_apart in ((one, set()), (mixed, {"rival"})):
        text = whatif.pairs_csv(whatif.offers(study))
        found = list(csv.DictReader(io.StringIO(text)))
        assert {row["kind"] for row in found if row["slots_alike"] == "0"} == told_apart
        assert {row["kind"] for row in found if row["slots_alike"] == "1"} >= {"self", "doubling"}


def test_the_page_opens_on_what_leads_the_site_and_not_on_the_newest_folder(
    tmp_path: Path,
) -> None:
    """A day's last sweep, of one slot alone, would say nothing of what doublings are worth."""
    alone = sweep(2, workload=dataclasses.replace(DAY44, slots=(1,)))
    alone.edit("systems", lambda row: dataclasses.replace(row, threads=1))
    study = load(write(tmp_path, sweep(0), sweep(1), alone))
    assert study.folders[-1].name == alone.plan.run_id
    found = whatif.offers(study)
    runs = list(dict.fromkeys(offer.sweep.name for offer in found))
    assert runs == [sweep(i).plan.run_id for i in (1, 0, 2)]
    assert (found[0].candidate.arm, found[0].candidate.slots) == ("nanoserve", 1)
    assert len(found) == sum(
        len(list(whatif._of_sweep(s))) for f in study.folders for s in f.sweeps
    )
