"""`check_offered_load`, and an open loop driven on a ruler."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench import RunUnsound, SystemRun, check_offered_load
from nanoserve_bench.arrivals import due_ns, offered
from nanoserve_bench.plan import Arrivals, Plan
from nanoserve_bench.records import Hold, RunRecord, Shape, StepRecord
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.runners import run_concurrent
from nanoserve_bench.runs import TrialKey, assemble
from nanoserve_bench.soundness import judge_path
from nanoserve_bench.soundness.rules.run_load import load_flaws
from support import load_studies, sound
from support.asking import findings, of, rows
from support.fake_systems import Params, SteppedFake
from support.rebuild import change, engine
from support.ruler import SETTINGS

MS = 1_000_000


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, SystemRun]:
    study = load_studies.study(0.9, blocks=1)
    results = read(study.write(tmp_path_factory.mktemp("load") / "run"))
    cell = load_studies.cell(results.plan.workloads[1])
    run = assemble(results)[TrialKey(0, cell, warmup=False)]
    return results.plan, dataclasses.replace(run, records=tuple(run.records))


def test_a_run_that_arrived_as_offered_is_accepted(loaded: tuple[Plan, SystemRun]) -> None:
    plan, run = loaded
    check_offered_load(run)
    check_offered_load(run, offered(plan, plan.workloads[1], 0))


def test_arrivals_that_were_not_due_are_refused(loaded: tuple[Plan, SystemRun]) -> None:
    plan, run = loaded
    due = list(offered(plan, plan.workloads[1], 0))
    due[7] += 1_000
    check_offered_load(run, due)
    due[7] += 1
    with pytest.raises(RunUnsound, match=r"RUN023 .*1 request\(s\) did not arrive.*request r7 "):
        check_offered_load(run, due)
    with pytest.raises(RunUnsound, match="32 requests arrived, and 31 were offered"):
        check_offered_load(run, due[:-1])


def serial(gap_ns: int, lag_ns: int, *, slots: int = 2, holds: bool = True) -> SystemRun:
    """Three requests of 100 ms each, due `gap_ns` apart and submitted `lag_ns` after that."""
    records = []
    for index in range(3):
        due = 10**9 + index * gap_ns
        sent = due + lag_ns * index
        records.append(
            RunRecord(
                request=str(index),
                prompt_ids=(index + 1,),
                output_ids=(5,),
                max_tokens=1,
                arrival_ns=due,
                submitted_ns=sent,
                holds=(Hold(sent, sent + 100 * MS),) if holds else None,
                first_token_ns=sent + 90 * MS,
                finished_ns=sent + 100 * MS,
            )
        )
    return SystemRun(
        system="s",
        shape=Shape.CONCURRENT,
        slots=slots,
        records=tuple(records),
        settings=SETTINGS,
    )


def test_a_submission_may_be_late_by_ten_milliseconds_and_no_more() -> None:
    check_offered_load(serial(gap_ns=500 * MS, lag_ns=5 * MS))
    with pytest.raises(RunUnsound, match="request 2 could be submitted 10000002 ns earlier"):
        check_offered_load(serial(gap_ns=500 * MS, lag_ns=5 * MS + 1))


@pytest.mark.parametrize(("started_ns", "late"), [(MS, False), (MS + 1, True)])
def test_what_falls_due_just_before_a_step_waits_for_its_end(started_ns: int, late: bool) -> None:
    """Between the client's look and the step's stamp lies what the engine does to begin it."""
    run = serial(gap_ns=500 * MS, lag_ns=15 * MS)
    first, second, third = (record.arrival_ns for record in run.records)
    steps = [
        StepRecord(start_ns=start, prefill_rows=rows, decode_rows=0, holders=rows, waiting=0)
        for due in (second, third)
        for start, rows in (
            (due + started_ns, 1),
            (due + (15 if due == second else 30) * MS, 0),
        )
    ]
    steps.insert(0, StepRecord(start_ns=first, prefill_rows=0, decode_rows=0, holders=0, waiting=0))
    run = dataclasses.replace(run, steps=tuple(steps))
    if late:
        with pytest.raises(RunUnsound, match=r"2 request\(s\) were submitted late"):
            check_offered_load(run)
    else:
        check_offered_load(run)


def test_a_closed_loop_is_told_from_an_open_one() -> None:
    """Due 60 ms apart, and each sent when the one before was answered."""
    with pytest.raises(RunUnsound) as caught:
        check_offered_load(serial(gap_ns=60 * MS, lag_ns=40 * MS))
    assert "no two of them ever held a slot together" in str(caught.value)
    assert "the loop was closed" in str(caught.value)
    with pytest.raises(RunUnsound, match="the loop was closed"):
        check_offered_load(serial(gap_ns=60 * MS, lag_ns=40 * MS, holds=False))
    # One slot serves one at a time because it is one.
    with pytest.raises(RunUnsound) as caught:
        check_offered_load(serial(gap_ns=60 * MS, lag_ns=40 * MS, slots=1))
    assert "one at a time" not in str(caught.value)


def said(run: SystemRun, due: Sequence[int] | None = None) -> list[tuple[str, str | None, str]]:
    return [(flaw.message, flaw.request, flaw.evidence) for flaw in load_flaws(run, due)]


def test_an_empty_run_offered_nothing() -> None:
    run = dataclasses.replace(serial(gap_ns=500 * MS, lag_ns=0), records=())
    with pytest.raises(RunUnsound, match="no load was offered"):
        check_offered_load(run)
    assert said(run) == [("the run has no requests, so no load was offered", None, "")]


def test_of_two_that_are_equally_wrong_the_first_is_named() -> None:
    run = serial(gap_ns=500 * MS, lag_ns=0)
    (off,) = said(run, (0, 500 * MS - 2_000, 1_000 * MS - 2_000))
    assert off == (
        (
            "2 request(s) did not arrive when they were due: request 1 arrived 500000000 ns after "
            "the first, and was due after 499998000 ns"
        ),
        "1",
        "furthest off by 2000 ns",
    )
    late = [dataclasses.replace(r, submitted_ns=r.arrival_ns + 11 * MS) for r in run.records]
    (flaw,) = said(dataclasses.replace(run, records=tuple(late)))
    assert flaw == (
        (
            "3 request(s) were submitted late: request 0 could be submitted 11000000 ns earlier, "
            "and 10000000 ns are the most"
        ),
        "0",
        f"due {late[0].arrival_ns}, submitted {late[0].submitted_ns}",
    )


@pytest.mark.parametrize(
    ("log", "late"),
    [
        (((5, 1),), True),
        (((-5, 1),), True),
        (((-5, 1), (4, 0)), False),
        (((-5, 0), (4, 1), (20, 0)), True),
        (((-5, 1), (-3, 0), (4, 0)), True),
    ],
)
def test_a_request_waits_for_the_step_that_runs_when_it_falls_due(
    log: tuple[tuple[int, int], ...], late: bool
) -> None:
    """Submitted 12 ms after it was due; steps by their start, in ms from then, and their rows."""
    run = serial(gap_ns=500 * MS, lag_ns=0)
    first = run.records[0]
    steps = tuple(
        StepRecord(first.arrival_ns + start * MS, 0, rows, rows, 0) for start, rows in log
    )
    records = (dataclasses.replace(first, submitted_ns=first.arrival_ns + 12 * MS),)
    assert bool(said(dataclasses.replace(run, records=records, steps=steps))) == late


def test_requests_that_never_finished_were_not_one_at_a_time() -> None:
    run = serial(gap_ns=60 * MS, lag_ns=0)
    records = tuple(dataclasses.replace(one, finished_ns=None) for one in run.records)
    assert said(dataclasses.replace(run, records=records)) == []


@pytest.mark.parametrize(("arrival_ms", "closed"), [(99, True), (100, False)])
def test_a_loop_is_closed_where_every_request_waited_for_an_answer(
    arrival_ms: int, closed: bool
) -> None:
    """The third request is sent when the second is answered, and due then or before."""
    one, two, three = serial(gap_ns=50 * MS, lag_ns=50 * MS, holds=False).records
    third = dataclasses.replace(three, arrival_ns=one.arrival_ns + (arrival_ms + 100) * MS)
    run = dataclasses.replace(serial(gap_ns=50 * MS, lag_ns=0), records=(one, two, third))
    message = (
        "every request was submitted only when the one before had finished, although it was due "
        "before: the loop was closed"
    )
    found = [text for text, *_ in said(run) if "late" not in text]
    assert found == [message] * closed


def late_in_a_burst(count: int, late: int, **values: Any) -> list[str]:
    """RUN023 of a concurrent trial of so many requests, of which one arrives after an answer."""
    results = read_once()
    name = f"r{late}"
    kept = [r for r in results.requests if not of(engine(2))(r) or int(r.request[1:]) < count]
    own = [row for row in kept if of(engine(2))(row)]
    done = min(row.finished_ns for row in own if row.request != name)
    requests = rows(tuple(kept), of(engine(2), request=name), arrival_ns=done)
    requests = rows(requests, of(engine(2), request="r0"), **values)
    own = tuple(filter(of(engine(2)), requests))  # in another order than those of other trials
    requests = (*reversed(own), *(row for row in requests if row not in own))
    return [str(finding) for finding in findings(results, "RUN023", requests=requests)]


@cache
def read_once() -> ResultSet:
    with tempfile.TemporaryDirectory() as folder:
        return read(sound.study().write(Path(folder) / "run"))


@pytest.mark.parametrize(("count", "late"), [(8, 5), (2, 1)])
def test_in_a_burst_no_request_arrives_after_another_was_answered(count: int, late: int) -> None:
    (found,) = late_in_a_burst(count, late)
    assert f"block 3, request r{late}, requests.csv:" in found
    assert f": request r{late} arrived at " in found
    assert found.endswith(" ns: the workload hands all of them over at once")


@pytest.mark.parametrize(
    ("values", "event"),
    [
        ({}, "had its first token"),
        ({"finished_ns": None}, "had its first token"),
        ({"first_token_ns": None}, "had finished"),
        ({"first_token_ns": None, "finished_ns": None}, None),
    ],
)
def test_what_answers_a_burst_is_its_first_token_or_a_finish(
    values: dict[str, Any], event: str | None
) -> None:
    found = late_in_a_burst(8, 5, **values)
    assert len(found) == (event is not None)
    assert all(f"when another one {event} at " in text for text in found)


def test_of_another_number_of_requests_it_is_not_known_when_they_were_due(
    tmp_path: Path,
) -> None:
    """RUN023 leaves them to RUN020."""
    results = read(load_studies.study(0.9, blocks=1).write(tmp_path / "run"))
    cell = load_studies.cell(results.plan.workloads[1])
    requests = tuple(r for r in results.requests if (r.cell, r.request) != (cell, "r31"))
    assert findings(results, "RUN023", requests=requests) == []


def test_poisson_gaps_are_exponential_and_constant_ones_equal() -> None:
    poisson = due_ns(Arrivals(process="poisson", rate_per_s=50.0), 4001, "a")
    gaps = [later - earlier for earlier, later in itertools.pairwise(poisson)]
    assert poisson[0] == 0
    assert statistics.fmean(gaps) == pytest.approx(20 * MS, rel=0.05)
    assert statistics.median(gaps) == pytest.approx(20 * MS * math.log(2), rel=0.06)
    assert statistics.stdev(gaps) == pytest.approx(20 * MS, rel=0.06)
    assert poisson == due_ns(Arrivals(process="poisson", rate_per_s=50.0), 4001, "a")
    assert poisson != due_ns(Arrivals(process="poisson", rate_per_s=50.0), 4001, "b")
    constant = due_ns(Arrivals(process="constant", rate_per_s=50.0), 4, "a")
    assert constant == (0, 20 * MS, 40 * MS, 60 * MS)


class Ruler:
    """A clock that moves when somebody works or sleeps."""

    def __init__(self, step_ns: int) -> None:
        self.now_ns = 10**9
        self.step_ns = step_ns
        self.slept: list[float] = []

    def clock(self) -> int:
        return self.now_ns

    def step(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += round(seconds * 1e9)


def test_each_request_is_handed_over_when_it_is_due_or_the_step_ends() -> None:
    """Steps of 10 ms; the second falls due in the first step, the third long after all is done."""
    ruler = Ruler(step_ns=10 * MS)
    run = run_concurrent(
        SteppedFake(2, clock=ruler.clock, work=ruler.step),
        [(1,), (2,), (3,)],
        Params(max_tokens=2),
        slots=2,
        system="s",
        settings=SETTINGS,
        due_ns=(0, 3 * MS, 100 * MS),
        clock=ruler.clock,
        sleep=ruler.sleep,
    )
    start = run.records[0].arrival_ns
    assert [r.arrival_ns - start for r in run.records] == [0, 3 * MS, 100 * MS]
    assert [r.submitted_ns - start for r in run.records] == [0, 10 * MS, 100 * MS]
    assert [(r.finished_ns or 0) - start for r in run.records] == [20 * MS, 30 * MS, 120 * MS]
    assert ruler.slept == [pytest.approx(0.070)]
    check_offered_load(run, (0, 3 * MS, 100 * MS))


@pytest.mark.parametrize(("cores", "refused"), [(0.5, False), (0.05, True)])
def test_a_worker_may_idle_between_requests_and_not_sleep_over_them(
    cores: float, refused: bool, tmp_path: Path
) -> None:
    """A tenth of the capacity: a slot is held for less than half of the time."""
    study = load_studies.study(0.1, blocks=2)
    cell = load_studies.cell(study.plan.workloads[1])
    change(study, "trials", cell=cell, cpu_ns=lambda row: round(cores * row.wall_ns))
    findings = judge_path(study.write(tmp_path / "run")).findings
    assert ("STAT004" in {f.rule for f in findings if f.cell == cell}) is refused
