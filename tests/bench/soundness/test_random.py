"""More of both, at random: sound studies of any size are accepted, a moved stamp is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.records import Hold
from nanoserve_bench.schema import token_digest
from nanoserve_bench.soundness import Verdict, judge_path
from support.rebuild import measured, replace
from support.sound import Study, study

few = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def verdict_of(made: Study) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return judge_path(made.write(Path(folder) / "run"))


@st.composite
def studies(draw: st.DrawFn) -> Study:
    requests = draw(st.integers(1, 9))
    slots = draw(st.sets(st.integers(1, requests), min_size=1, max_size=3).map(sorted))
    base = draw(st.floats(40, 200))
    engine = draw(st.floats(25, 150))
    row = draw(st.floats(0, 40))
    return study(
        workload=WorkloadPlan(
            name="day44",
            requests=requests,
            prompt_tokens=draw(st.integers(3, 20)),
            new_tokens=draw(st.integers(4, 24)),
            slots=tuple(slots),
        ),
        blocks=draw(st.integers(5, 9)),
        step_ms=lambda system, rows: base if system != "nanoserve" else engine + row * rows,
        spread=draw(st.floats(0.002, 0.02)),
        seed=draw(st.integers(0, 10**6)),
    )


@few
@given(studies())
def test_any_sound_study_is_accepted(made: Study) -> None:
    assert [str(finding) for finding in verdict_of(made).findings] == []


def _moved(row: Any, column: str, delta: int) -> Any:
    if column == "holds_ns":
        first, *rest = row.holds_ns
        return replace(row, holds_ns=(Hold(first.acquired_ns + delta, first.released_ns), *rest))
    return replace(row, **{column: getattr(row, column) + delta})


@few
@given(
    made=studies(),
    data=st.data(),
    column=st.sampled_from(["holds_ns", "first_token_ns", "finished_ns"]),
    delta=st.one_of(st.integers(-(10**9), -1), st.integers(1, 10**9)),
)
def test_a_stamp_of_the_engine_moved_by_any_time_is_refused(
    made: Study, data: st.DataObject, column: str, delta: int
) -> None:
    cells = [cell.id for cell in made.plan.cells if cell.arm == "nanoserve"]
    cell = data.draw(st.sampled_from(cells))
    request = f"r{data.draw(st.integers(0, made.plan.workloads[0].requests - 1))}"
    block = data.draw(st.integers(0, len(made.blocks) - 1))
    assert made.edit(
        "requests",
        lambda row: _moved(row, column, delta),
        where=measured(cell, request),
        blocks=[block],
    )
    verdict = verdict_of(made)
    assert cell in {finding.cell for finding in verdict.findings}
    assert not any("could not be applied" in finding.message for finding in verdict.findings)


@few
@given(made=studies(), data=st.data())
def test_a_changed_token_is_refused_with_its_position(made: Study, data: st.DataObject) -> None:
    block = data.draw(st.integers(0, len(made.blocks) - 1))
    cell = data.draw(st.sampled_from([cell.id for cell in made.plan.cells]))
    rows = made.blocks[block]
    row = next(r for r in rows.requests if measured(cell, "r0")(r))
    ids = {token_digest(o): o for o in rows.outputs}[row.output_sha256]
    position = data.draw(st.integers(0, len(ids) - 1))
    other = (*ids[:position], ids[position] + 1, *ids[position + 1 :])
    made.blocks[block] = replace(rows, outputs=(*rows.outputs, other))
    made.edit(
        "requests",
        lambda r: replace(r, output_sha256=token_digest(other)),
        where=measured(cell, "r0"),
        blocks=[block],
    )
    found = verdict_of(made).findings
    assert {(f.rule, f.block, f.request, f.position) for f in found} == {
        ("PAIR005", block, "r0", position)
    }
    assert all(cell in {f.cell, f.reference_cell} for f in found)
