"""Rules about runs, asked of a whole study: what each finding says, and where it points.

What each case is expected to find stands in `places.csv` beside this file.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanoserve_bench.plan import VOCABULARY, Fact
from nanoserve_bench.records import Hold
from nanoserve_bench.results import ResultSet, read
from nanoserve_bench.schema import StepRow, token_digest
from nanoserve_bench.soundness.rules import run_tokens
from nanoserve_bench.soundness.rules.run_ceiling import LEAST_SHARE
from nanoserve_bench.soundness.rules.run_ids import MOST_IDS, vocabulary
from support.asking import asked, findings, of, rows, without
from support.rebuild import AGAIN, BASE, engine, replace
from support.sound import study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return read(study().write(tmp_path_factory.mktemp("sound") / "run"))


with Path(__file__).with_name("places.csv").open(encoding="utf-8", newline="") as _file:
    EXPECTED = list(csv.DictReader(_file))
Change = Callable[[ResultSet], dict[str, Any]]


def request(number: int, cell: str = engine(4), **values: Any) -> Change:
    """Columns of one request of block 3 set."""
    return lambda results: {
        "requests": rows(results.requests, of(cell, request=f"r{number}"), **values)
    }


def launch(arm: str = "nanoserve", /, **values: Any) -> Change:
    """Columns of what an arm's worker of block 3 says about itself set."""

    def changes(results: ResultSet) -> dict[str, Any]:
        systems = rows(results.systems, lambda row: (row.arm, row.block) == (arm, 3), **values)
        return {"systems": systems}

    return changes


def said(results: ResultSet, name: str) -> list[tuple[str, str]]:
    """What the rule of a case finds, and the evidence."""
    code, change = CASES[name]
    return [(str(one), one.evidence) for one in findings(results, code, **change(results))]


def together(*changes: Change) -> Change:
    """All of them, the later ones on top of the earlier ones."""

    def changed(results: ResultSet) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for change in changes:
            made |= change(replace(results, **made))
        return made

    return changed


def tokens(number: int, *ids: int, prompt: bool = False, warmup: bool = False) -> Change:
    """The first ids of the prompt or output of one request of 4 slots in block 3 set."""
    table, column = ("prompts", "prompt_sha256") if prompt else ("outputs", "output_sha256")

    def changes(results: ResultSet) -> dict[str, Any]:
        key = (3, engine(4), warmup, f"r{number}")

        def its(row: Any) -> bool:
            return (row.block, row.cell, row.warmup, row.request) == key

        (row,) = filter(its, results.requests)
        lists = getattr(results, table)
        new = (*ids, *lists[getattr(row, column)][len(ids) :])
        digest = token_digest(new)
        return {
            table: {**lists, digest: new},
            "requests": rows(results.requests, its, **{column: digest}),
        }

    return changes


def fact(value: Any) -> Change:
    """The size of the vocabulary as somebody recorded it."""
    return lambda results: {
        "manifest": replace(
            results.manifest, facts=(*results.manifest.facts, Fact(name=VOCABULARY, value=value))
        )
    }


def no_steps(cell: str) -> Change:
    """The log of a measured trial of block 3 lost."""
    return lambda results: {"steps": tuple(row for row in results.steps if not of(cell)(row))}


def steps(number: int, **values: Any) -> Change:
    """Columns of one step of 4 slots in block 3 set."""
    return lambda results: {
        "steps": rows(
            results.steps, lambda row: of(engine(4))(row) and row.step == number, **values
        )
    }


def first_step(results: ResultSet) -> StepRow:
    """The first step of 4 slots in block 3."""
    return next(filter(of(engine(4)), results.steps))


def idle_step(**values: Any) -> Change:
    """A row in which nobody holds a slot, nor waits by what it says, before the first step."""

    def changes(results: ResultSet) -> dict[str, Any]:
        first = first_step(results)
        idle = {"prefill_rows": 0, "decode_rows": 0, "holders": 0, "waiting": 0}
        row = replace(first, step=-1, start_ns=first.start_ns - 1, **{**idle, **values})
        return {"steps": (*results.steps, row)}

    return changes


def lacking(number: int) -> Callable[[Any], tuple[int, ...]]:
    """The token stamps of a request without one of them."""
    return lambda row: (*row.token_ns[:number], *row.token_ns[number + 1 :])


USUAL = 28_005_000_001.0


def ceilings(block: int = 3, **values: Any) -> Change:
    """What one block measured, where all others measured 28.01 GB/s and 150 GFLOP/s."""
    usual = {"read_bytes_per_s": USUAL, "matmul_flop_per_s": 150e9}
    return lambda results: {
        "ceilings": tuple(
            replace(row, **{**usual, **(values if row.block == block else {})})
            for row in results.ceilings
        )
    }


CASES: dict[str, tuple[str, Change]] = {
    "counts": ("RUN007", request(2, output_tokens=17, prompt_tokens=5)),
    "stamps-unknown": (
        "RUN004",
        together(
            launch("hf-generate", stamps="holds first_token beats a"),
            request(2, BASE, first_token_ns=None),
        ),
    ),
    "stamps-untold": (
        "RUN004",
        together(launch("hf-generate", stamps="tokens steps"), request(0, BASE, holds_ns=None)),
    ),
    "stamps-of-nobody": (
        "RUN004",
        together(launch("hf-generate", stamps=""), request(0, BASE, first_token_ns=None)),
    ),
    "steps-lost": ("RUN004", no_steps(engine(4))),
    "steps-lost-with-tokens": ("RUN022", no_steps(engine(4))),
    "slot-taken-between-steps": (
        "RUN022",
        request(2, holds_ns=lambda row: (Hold(row.holds_ns[0][0] + 1, row.holds_ns[0][1]),)),
    ),
    "slot-left-between-steps": (
        "RUN022",
        request(2, holds_ns=lambda row: (Hold(row.holds_ns[0][0], row.holds_ns[0][1] + 1),)),
    ),
    "first-token-between-steps": (
        "RUN022",
        request(2, first_token_ns=lambda row: row.first_token_ns + 1),
    ),
    "first-token-untold": ("RUN022", request(2, first_token_ns=None)),
    "token-between-steps": (
        "RUN022",
        request(
            2, token_ns=lambda row: (*row.token_ns[:-2], row.token_ns[-2] + 1, row.token_ns[-1])
        ),
    ),
    "token-behind-the-log": (
        "RUN022",
        request(7, token_ns=lambda row: (*row.token_ns[:-1], row.token_ns[-1] + 1)),
    ),
    "two-tokens-of-one-row": (
        "RUN022",
        request(2, token_ns=lambda row: (row.token_ns[0], row.token_ns[0], *row.token_ns[2:])),
    ),
    "rows-for-what-was-discarded": ("RUN022", request(2, discarded_tokens=1)),
    "ceiling-missing": (
        "RUN018",
        lambda results: {"ceilings": tuple(row for row in results.ceilings if row.block != 3)},
    ),
    "ceiling-a-tenth": ("RUN018", ceilings(read_bytes_per_s=LEAST_SHARE * USUAL)),
    "ceiling-above-a-tenth": (
        "RUN018",
        ceilings(read_bytes_per_s=math.nextafter(LEAST_SHARE * USUAL, USUAL)),
    ),
    "ceiling-threefold": ("RUN018", ceilings(matmul_flop_per_s=450e9)),
    "ceiling-above-threefold": (
        "RUN018",
        ceilings(matmul_flop_per_s=math.nextafter(450e9, math.inf)),
    ),
    "ceiling-over-half-of-the-weights": ("RUN018", ceilings(buffer_bytes=269_000_000)),
    "ceiling-over-less": ("RUN018", ceilings(buffer_bytes=268_999_999)),
    "bytes-untold": (
        "RUN018",
        together(launch(weight_bytes_per_step=None), ceilings(buffer_bytes=0)),
    ),
    "bytes-of-nothing": ("RUN018", launch(weight_bytes_per_step=0)),
    "bytes-of-one": ("RUN018", launch(weight_bytes_per_step=1)),
    "bytes-a-quarter": ("RUN018", launch(weight_bytes_per_step=134_500_000)),
    "bytes-less-than-a-quarter": ("RUN018", launch(weight_bytes_per_step=134_499_999)),
    "bytes-of-unnamed-weights": (
        "RUN018",
        launch("hf-generate", weight_bytes_per_step=1, weights=None),
    ),
    "bytes-of-declared-weights": (
        "RUN018",
        lambda results: {
            "systems": rows(
                rows(results.systems, lambda _: True, weights="declared:mine"),
                lambda row: row.arm == "hf-generate",
                weight_bytes_per_step=1,
            )
        },
    ),
    "bytes-of-one-in-the-last-block": (
        "RUN018",
        lambda results: {
            "systems": rows(results.systems, lambda row: row.block == 7, weight_bytes_per_step=1)
        },
    ),
    "ceiling-for-no-wall": ("RUN018", request(2, finished_ns=None)),
    "launch-of-another-block": ("RUN020", launch("hf-generate", block=9)),
    "launch-of-another-arm": ("RUN020", launch("hf-generate", arm="hf-generate-again")),
    "launch-of-another-system": ("RUN020", launch("hf-generate", system="vllm")),
    "launch-on-another-device": (
        "RUN020",
        launch("hf-generate", version="0", device="cuda:0", dtype="float16", decoding="greedy"),
    ),
    "launch-at-another-revision": ("RUN020", launch(revision="abc")),
    "launch-at-no-planned-revision": (
        "RUN020",
        together(
            launch("hf-generate", revision="abc"),
            lambda results: {
                "plan": replace(
                    results.plan,
                    arms=tuple(
                        replace(arm, revision="abd") if arm.name == "hf-generate" else arm
                        for arm in results.plan.arms
                    ),
                )
            },
        ),
    ),
    "rows-of-a-token-behind-the-log": (
        "RUN025",
        request(7, token_ns=lambda row: (*row.token_ns[:-1], row.token_ns[-1] + 1)),
    ),
    "rows-of-a-token-before-the-log": (
        "RUN025",
        request(0, token_ns=lambda row: (0, *row.token_ns[1:])),
    ),
    "rows-of-a-slot-left-between-steps": (
        "RUN025",
        request(
            2,
            holds_ns=lambda row: (Hold(row.holds_ns[0][0], row.holds_ns[0][1] + 1),),
            finished_ns=lambda row: row.finished_ns + 1,
        ),
    ),
    "rows-of-a-token-between-steps": (
        "RUN025",
        request(
            2, token_ns=lambda row: (*row.token_ns[:3], row.token_ns[3] + 1, *row.token_ns[4:])
        ),
    ),
    "rows-of-a-decode-for-a-prefill": ("RUN025", steps(0, prefill_rows=3, decode_rows=1)),
    "rows-of-a-decode-for-a-cached-prompt": (
        "RUN025",
        together(steps(0, prefill_rows=3, decode_rows=1), request(2, cached_tokens=1)),
    ),
    "rows-of-nobody-while-slots-are-held": (
        "RUN025",
        steps(1, prefill_rows=0, decode_rows=0, waiting=0),
    ),
    "rows-of-nobody-between-steps": ("RUN025", idle_step()),
    "rows-of-somebody-between-steps": ("RUN025", idle_step(prefill_rows=1, decode_rows=1)),
    "rows-of-a-trial-without-token-stamps": ("RUN025", request(2, token_ns=None)),
    "rows-of-two-steps-at-once": (
        "RUN025",
        lambda results: steps(1, start_ns=first_step(results).start_ns, waiting=0)(results),
    ),
    "rows-of-a-token-left-out": ("RUN025", request(2, token_ns=lacking(3))),
    "rows-behind-the-length-of-a-request": (
        "RUN025",
        request(2, token_ns=lacking(3), discarded_tokens=1),
    ),
    "rows-beyond-the-holders": (
        "RUN025",
        together(
            request(2, token_ns=lacking(3), discarded_tokens=1),
            steps(3, decode_rows=5),
            steps(0, decode_rows=1),
        ),
    ),
    "rows-beyond-the-holders-of-a-cached-prompt": (
        "RUN025",
        together(
            request(2, cached_tokens=1, discarded_tokens=1), steps(0, prefill_rows=3, decode_rows=2)
        ),
    ),
    "rows-of-a-prompt-in-two-steps": ("RUN025", request(2, token_ns=lacking(0))),
    "rows-beyond-a-prompt-in-two-steps": (
        "RUN025",
        together(
            request(2, token_ns=lacking(0), discarded_tokens=1),
            steps(0, prefill_rows=5, decode_rows=1),
            steps(2, prefill_rows=1),
        ),
    ),
    "rows-of-a-prompt-without-an-end": (
        "RUN025",
        together(request(2, token_ns=()), steps(15, prefill_rows=1, decode_rows=3)),
    ),
    "rows-behind-a-prompt-without-an-end": (
        "RUN025",
        together(request(2, token_ns=()), steps(16, prefill_rows=5)),
    ),
    "rows-of-a-first-prompt-without-an-end": ("RUN025", request(0, token_ns=())),
    "rows-of-a-first-request-without-a-slot": ("RUN025", request(0, token_ns=(), holds_ns=())),
    "rows-of-a-token-before-the-only-hold": (
        "RUN025",
        together(
            lambda results: {
                "requests": tuple(
                    row for row in results.requests if row.request == "r0" or not of(engine(4))(row)
                )
            },
            request(0, token_ns=lambda row: (row.holds_ns[0].acquired_ns, *row.token_ns[1:])),
            idle_step(),
        ),
    ),
    "queue-too-long": ("RUN025", steps(0, waiting=5)),
    "queue-left-out": ("RUN025", steps(0, waiting=3)),
    "id-below-zero": ("RUN024", tokens(2, 5, 0, -1)),
    "id-below-zero-in-a-prompt": ("RUN024", tokens(2, 0, -1, -2, prompt=True)),
    "id-below-zero-in-a-warm-up-too": (
        "RUN024",
        together(tokens(2, 5, 0, -1), tokens(0, -1, warmup=True)),
    ),
    "id-largest": ("RUN024", tokens(2, MOST_IDS - 1)),
    "id-beyond": ("RUN024", tokens(2, 1, MOST_IDS)),
    "id-last-of-the-vocabulary": ("RUN024", together(tokens(2, 49_151), fact(49_152))),
    "id-behind-the-vocabulary": ("RUN024", together(tokens(2, 49_152), fact(49_152))),
}


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, (code, _) in CASES.items()])
def test_a_finding_says_what_is_wrong_and_where(results: ResultSet, name: str, code: str) -> None:
    expected = [(row["finding"], row["evidence"]) for row in EXPECTED if row["case"] == name]
    assert said(results, name) == expected
    assert all(finding.startswith(code) for finding, _ in expected)


def test_a_trial_of_a_workload_that_is_not_planned_is_refused(results: ResultSet) -> None:
    found = findings(results, "RUN020", plan=replace(results.plan, workloads=()))
    assert {one.message for one in found} == {"it ran 8 requests, and workload day44 has None"}


@pytest.mark.parametrize(("others", "refused"), [(0, False), (1, True)])
def test_prompts_of_a_shared_prefix_begin_alike(
    results: ResultSet, others: int, refused: bool
) -> None:
    alike = together(*(tokens(n, 7, 7 + (n < others), prompt=True) for n in range(8)))(results)
    (workload,) = results.plan.workloads
    plan = replace(results.plan, workloads=(replace(workload, prefix_tokens=2),))
    found = findings(results, "RUN020", plan=plan, **alike)
    message = (
        "its prompts have 2 different beginnings, and those of workload day44 share their first "
        "2 tokens"
    )
    own = [one.message for one in found if (one.block, one.cell) == (3, engine(4))]
    assert own == [message] * refused


def test_without_its_warm_up_no_other_worker_had_it(results: ResultSet) -> None:
    assert findings(results, "RUN020", **without(results, lambda row: row.warmup)) == []


@pytest.mark.parametrize(
    ("devices", "messages"),
    [
        (("cuda:0", "cuda:1"), set()),
        (
            ("cuda:0", "cuda:0"),
            {"device cuda:0 is a B in arm nanoserve, and a A in arm hf-generate"},
        ),
        (("cpu", "cpu"), set()),
    ],
)
def test_an_accelerator_has_one_name(
    results: ResultSet, devices: tuple[str, str], messages: set[str]
) -> None:
    cells = tuple(
        replace(cell, device=devices[cell.arm == "nanoserve"]) for cell in results.plan.cells
    )
    systems = rows(results.systems, lambda row: row.arm == "nanoserve", device_name="B")
    systems = rows(systems, lambda row: row.arm != "nanoserve", device_name="A")
    plan = replace(results.plan, cells=cells)
    assert {one.message for one in findings(results, "RUN021", plan=plan, systems=systems)} == (
        messages
    )


def at_the_ceiling(
    results: ResultSet, read: float, multiply: float, cell: str = BASE, **changes: Any
) -> list[tuple[str, str | None]]:
    """What is said of one trial of a device that does so much in every block.

    A step reads 1.5 GB: 375 million weights.
    """
    systems = rows(results.systems, lambda _: True, weight_bytes_per_step=1_500_000_000)
    measured = {
        "read_bytes_per_s": read, "matmul_flop_per_s": multiply, "buffer_bytes": 10**10
    }  # fmt: skip
    ceilings = tuple(replace(row, **measured) for row in results.ceilings)
    found = findings(results, "RUN018", systems=systems, ceilings=ceilings, **changes)
    return [(one.message, one.request) for one in found if (one.block, one.cell) == (3, cell)]


@pytest.mark.parametrize(
    ("wall_ns", "read", "multiply", "expected"),
    [
        (8_000_000_000, 16e9, 8e9, []),
        (7_999_999_999, 16e9, 1e15, ["it reads weights at 24.0 GB/s {least} 16.0 GB/s"]),
        (7_999_999_999, 1e15, 8e9, ["it multiplies at 12.0 GFLOP/s {least} 8.0 GFLOP/s"]),
        (
            7_983_367_983,
            15_950_000_001.0,
            1e15,
            ["it reads weights at 24.1 GB/s {least} 16.0 GB/s"],
        ),
    ],
)
def test_a_run_does_half_as_much_again_as_the_best_that_was_seen_and_no_more(
    results: ResultSet, wall_ns: int, read: float, multiply: float, expected: list[str]
) -> None:
    """Of 128 tokens, and as many steps."""
    first = min(row.arrival_ns for row in results.requests if of(BASE)(row))
    requests = rows(results.requests, of(BASE, request="r7"), finished_ns=first + wall_ns)
    found = at_the_ceiling(results, read, multiply, requests=requests)
    least = "at the very least, and the highest that the device was seen to do is"
    assert [text for text, _ in found if text.startswith("it ")] == [
        text.format(least=least) for text in expected
    ]


FIRST = "its first token after {} ns, in which the device reads the weights {} times at most"
FOLLOWING = "what {}".format(FIRST.replace("its", "follows its"))


@pytest.mark.parametrize(
    ("first", "rest", "values", "message"),
    [
        (1_000_000, 15_000_000, {}, None),
        (999_999, 15_000_000, {}, f"{FIRST.format(999_999, '1.00')}, and 1"),
        (1_000_000, 14_999_999, {}, f"{FOLLOWING.format(14_999_999, '15.00')}, and 15"),
        (1_000_000, 16_000_000, {"discarded_tokens": 1}, None),
        (
            1_000_000,
            15_999_999,
            {"discarded_tokens": 1},
            f"{FOLLOWING.format(15_999_999, '16.00')}, and 16",
        ),
        (1_000_000, 1, {"holds_ns": None}, None),
        (1, 1, {"first_token_ns": None}, None),
        (1, 1, {"finished_ns": None}, None),
    ],
)
def test_no_token_comes_sooner_than_the_weights_can_be_read(
    results: ResultSet, first: int, rest: int, values: dict[str, Any], message: str | None
) -> None:
    """A step of this device takes a millisecond at least."""
    stamps = {
        "first_token_ns": lambda row: row.submitted_ns + first,
        "finished_ns": lambda row: row.submitted_ns + first + rest,
    }
    requests = rows(results.requests, of(BASE, request="r2"), **{**stamps, **values})
    found = at_the_ceiling(results, 1e12, 1e15, requests=requests)
    said = [(text, request) for text, request in found if text.startswith("1 request(s)")]
    whole = f"1 request(s), such as r2, have {message} are the least"
    assert said == ([] if message is None else [(whole, "r2")])


@pytest.mark.parametrize(("span_ns", "refused"), [(500_000, False), (499_999, True)])
def test_no_step_is_over_before_half_of_the_weights_can_be_read(
    results: ResultSet, span_ns: int, refused: bool
) -> None:
    """A step of decodes, on a device that reads the weights in a millisecond at least."""
    begun = next(row.start_ns for row in results.steps if of(engine(4))(row) and row.step == 1)
    changed = steps(2, start_ns=begun + span_ns)(results)
    message = (
        "1 step(s), such as 1, ran rows and were over after 499999 ns, in which the device reads "
        "0.50 of the weights at most"
    )
    assert at_the_ceiling(results, 1e12, 1e15, engine(4), **changed) == [(message, None)] * refused


def test_every_finding_that_is_expected_has_a_case() -> None:
    assert {row["case"] for row in EXPECTED} <= CASES.keys()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("RUN022", "no system of the study keeps a step log"),
        ("RUN023", "no workload is an open loop, and no run concurrent"),
        ("RUN025", "no system of the study keeps a step log"),
    ],
)
def test_of_serial_runs_alone_the_rules_about_steps_and_loads_say_so(
    results: ResultSet, code: str, reason: str
) -> None:
    cells = tuple(cell for cell in results.plan.cells if cell.id in {BASE, AGAIN})
    plan = replace(results.plan, cells=cells)
    inspection = asked(
        results, code, plan=plan, **without(results, lambda row: row.cell not in {BASE, AGAIN})
    )
    assert (inspection.not_applicable, inspection.findings) == (reason, [])


def test_the_requests_of_a_sound_log_are_not_looked_at_one_by_one(
    results: ResultSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(run_tokens, "_request_flaws")
    assert findings(results, "RUN022") == []


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ((), None),
        ((49_152,), 49_152),
        ((1,), 1),
        ((0, -5), None),
        ((True, "49152", 49_152.0, None), None),
        ((True, "49152", 49_152.0, None, 50_000, 49_152), 49_152),
    ],
)
def test_the_size_of_the_vocabulary_is_the_least_whole_number_recorded(
    results: ResultSet, values: tuple[Any, ...], size: int | None
) -> None:
    """Which RUN024 holds the ids against."""
    manifest = results.manifest
    for value in values:
        manifest = fact(value)(replace(results, manifest=manifest))["manifest"]
    assert vocabulary(manifest) == size
