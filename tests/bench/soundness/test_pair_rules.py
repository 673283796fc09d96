"""What rules about pairs say, and where, at their borders: one value of a side at a time."""

from __future__ import annotations

import pytest

from nanoserve_bench.records import SystemRun
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.rule import Flaw, PairRule
from nanoserve_bench.soundness.rules import pair_settings, pair_work
from support.asking import findings, rows
from support.rebuild import AGAIN, BASE
from support.ruler import edited, serial


def flaws(rule: PairRule, baseline: SystemRun, candidate: SystemRun) -> list[Flaw]:
    return list(rule.check(baseline, candidate))


def messages(rule: PairRule, baseline: SystemRun, candidate: SystemRun) -> list[str]:
    return [flaw.message for flaw in flaws(rule, baseline, candidate)]


# PAIR013: one system twice.


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [
        ("a=1;b=2", "b=2;a=1", []),
        ("a=1", "a=1;b=2", ["library b is 2 in the candidate and absent in the baseline"]),
        ("a=1;b=2", "a=1", ["library b is absent in the candidate and 2 in the baseline"]),
        ("a=1=x", "a=1=y", ["library a is 1=y in the candidate and 1=x in the baseline"]),
        ("a=1;a=1=x", "a=1=x", ["the baseline names library a 2 times"]),
        ("a=1", "a=1;a=1;a=1", ["the candidate names library a 3 times"]),
        (
            "hf-generate=1",
            "hf-generate=2",
            ["library hf-generate is 2 in the candidate and 1 in the baseline"],
        ),
    ],
)
def test_one_system_twice_has_the_same_libraries(
    results: ResultSet, baseline: str, candidate: str, expected: list[str]
) -> None:
    systems = results.systems
    for arm, libraries in (("hf-generate", baseline), ("hf-generate-again", candidate)):
        systems = rows(systems, lambda row, arm=arm: row.arm == arm, libraries=libraries)
    found = findings(results, "PAIR013", systems=systems)
    for block in range(8):
        of_block = [finding for finding in found if finding.block == block]
        assert [finding.message for finding in of_block] == expected
    line = {row.block: results.line_of(row) for row in results.systems if row.arm.endswith("again")}
    assert {(f.reference_cell, f.cell, f.file) for f in found} <= {(BASE, AGAIN, "systems.csv")}
    assert all(finding.row == line[finding.block] for finding in found)


# PAIR006 and PAIR012: what names weights and a tokenizer.

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        (f"sha256:{DIGEST}", True),
        (f"sha256:{DIGEST[1:]}", False),
        (f"sha256:{DIGEST}0", False),
        (f"md5:{DIGEST}", False),
        ("declared:Q4_1 of the same", True),
        ("declared: Unknown ", False),
        ("declared: ", False),
    ],
)
def test_weights_are_named_by_a_digest_or_a_declaration(weights: str, named: bool) -> None:
    found = flaws(pair_settings.WEIGHTS, serial(weights=weights), serial(weights=weights))
    assert found == [
        Flaw(
            "the weights are named by neither a digest nor a declaration",
            evidence=f"baseline {weights}, candidate {weights}",
        )
    ] * (not named)


@pytest.mark.parametrize(
    ("tokenizer", "digest"),
    [
        (f"sha256:{DIGEST}", None),
        (f"sha256:{DIGEST}:2", f"{DIGEST}:2"),
        ("sha256", ""),
        ("none", None),
        ("gguf:sha256:1", None),
    ],
)
def test_a_tokenizer_named_by_a_digest_has_one(tokenizer: str, digest: str | None) -> None:
    found = messages(
        pair_settings.TOKENIZER, serial(tokenizer=tokenizer), serial(tokenizer=tokenizer)
    )
    named = f"names its tokenizer by a digest that is none: {digest!r}"
    sides = ("the baseline", "the candidate") if digest is not None else ()
    assert found == [f"{side} {named}" for side in sides]


# PAIR010: what the caches served.


@pytest.mark.parametrize(
    ("baseline", "candidate", "message"),
    [
        (0, 0, None),
        (1, 4, None),
        (4, 1, None),
        (
            1,
            5,
            (
                "of 30 prompt tokens the candidate took 5 from its prefix cache and the baseline "
                "1: one of them had more to compute"
            ),
        ),
        (
            0,
            1,
            (
                "only one side answered from a warm prefix cache: 1 cached tokens in the "
                "candidate, 0 in the baseline"
            ),
        ),
    ],
)
def test_caches_may_serve_a_tenth_of_the_prompts_apart(
    baseline: int, candidate: int, message: str | None
) -> None:
    below, above = (
        edited(serial(10, cache="on"), 3, cached_tokens=cached) for cached in (baseline, candidate)
    )
    assert messages(pair_settings.CACHE, below, above) == ([] if message is None else [message])


# PAIR003 and PAIR004: how long prompts and outputs are.


@pytest.mark.parametrize(
    ("decoding", "greedy"),
    [
        ("greedy", True),
        ("greedy;do_sample=False;top_p=0.9", True),
        ("greedy;do_sample=0;ignore_eos", True),
        ("greedy;do_sample=true", False),
        ("greedy;ignore_eos; Do_Sample = 1", False),
        ("greedy;sample", False),
        ("sample;ignore_eos", False),
    ],
)
def test_a_decoding_is_greedy_where_it_does_not_sample(decoding: str, greedy: bool) -> None:
    run = serial(1, decoding=decoding)
    said = [
        f"the {side} did not decode greedily ({decoding}): that its tokens agree is no evidence of "
        "equal work"
        for side in ("baseline", "candidate")
    ]
    assert messages(pair_settings.DECODING, run, run) == ([] if greedy else said)


def test_prompt_lengths_are_told_with_their_counts() -> None:
    longer = edited(serial(3), 1, prompt_ids=(1, 1, 2, 3, 4))
    assert flaws(pair_work.PROMPT_LENGTHS, serial(3), serial(3)) == []
    assert flaws(pair_work.PROMPT_LENGTHS, serial(3), longer) == [
        Flaw(
            "the prompts have 11 tokens in the candidate and 9 in the baseline",
            evidence="candidate {3: 2, 5: 1}, baseline {3: 3} (requests by prompt length)",
        )
    ]


def test_output_lengths_are_told_from_where_the_shorter_one_ends() -> None:
    short, asked = edited(serial(), 2, output_ids=(20, 21)), edited(serial(), 2, max_tokens=9)
    name = "request r2 has"
    for below, above, flaw in (
        (serial(), short, Flaw(f"{name} 2 output tokens, the baseline 4", "r2", 2)),
        (short, serial(), Flaw(f"{name} 4 output tokens, the baseline 2", "r2", 2)),
        (serial(), asked, Flaw("request r2 was asked for 9 tokens, the baseline for 4", "r2")),
    ):
        assert flaws(pair_work.OUTPUT_LENGTHS, below, above) == [flaw]


# PAIR005: what was said.


def test_requests_of_one_prompt_are_matched_in_their_order() -> None:
    below, above = serial(3), serial(4)
    for number in (0, 2):
        below = edited(below, number, prompt_ids=(7,))
        above = edited(above, number + 1, prompt_ids=(7,))
    pairs = [(one.request, two.request) for one, two in pair_work.matched(below, above)]
    assert pairs == [("r0", "r1"), ("r2", "r3")]
    again = [(one.request, two.request) for one, two in pair_work.matched(above, below)]
    assert again == [("r1", "r0"), ("r3", "r2")]


IDS = tuple(range(100, 112))


@pytest.mark.parametrize(
    ("ours", "position", "said", "start", "shown"),
    [
        ((5, *IDS[1:]), 0, "token 5 instead of token 100", 0, ("5 101 102 103", "100 101 102 103")),
        (
            (*IDS[:5], 5, *IDS[6:]),
            5,
            "token 5 instead of token 105",
            1,
            ("101 102 103 104 5 106 107 108", "101 102 103 104 105 106 107 108"),
        ),
        (
            IDS[:11],
            11,
            "no token instead of token 111",
            7,
            ("107 108 109 110", "107 108 109 110 111"),
        ),
    ],
)
def test_where_outputs_part_is_shown_with_its_surroundings(
    ours: tuple[int, ...], position: int, said: str, start: int, shown: tuple[str, str]
) -> None:
    below = edited(serial(), 1, output_ids=IDS)
    (flaw,) = pair_work.tokens_between(below, edited(serial(), 1, output_ids=ours))
    assert flaw == Flaw(
        f"request r1 differs from the baseline at position {position}: {said}; triage not recorded",
        request="r1",
        position=position,
        evidence=f"from position {start}: candidate {shown[0]} | baseline {shown[1]}",
    )
