"""The calibration: recorded noise played back, studies whose truth is known, and what is stale."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable
from statistics import correlation, stdev

import pytest

from nanoserve_bench import stopping
from nanoserve_bench.calibration import intervals, simulate, study
from nanoserve_bench.calibration.noise import Logs, RecordedBlock, Source
from nanoserve_bench.calibration.records import Outcomes, SourceFacts
from nanoserve_bench.calibration.study import Arms, Setup
from nanoserve_bench.calibration.tape import Tape
from nanoserve_bench.plan import Blocks
from nanoserve_bench.statistics import (
    Estimate,
    compare_verdict,
    estimate,
    share_interval,
    worth_verdict,
)

EIGHT = Blocks(least=8, most=8, target_half_width=None, most_reruns=2)
STOPPING = Blocks(least=8, most=24, target_half_width=0.02, most_reruns=6)
ORDER = simulate.Order(name="test", seed=1, studies=600)


def logs(value: float) -> Logs:
    """A trial whose throughput is e^value, all of it from what a slot yields."""
    return Logs(throughput=value, batch=0.0, slot=value, system=0.0, request=value)


def recorded(first: float | None, second: float = 0.0) -> RecordedBlock:
    trials = None if first is None else (logs(first), logs(second))
    return RecordedBlock(trials=trials, forward=True)


def source(*blocks: RecordedBlock) -> Source:
    facts = SourceFacts(
        name="s", system="s", device="cpu", dtype="float32", slots=1, workload="w", machine="m",
        run_ids=("r",), blocks=len(blocks), contended=0, pairs=len(blocks), deviation=0.0,
        mean=0.0, place=0.0, ratio_correlation=0.0, level_correlation=0.0,
    )  # fmt: skip
    return Source(facts=facts, stretches=(blocks,))


def gaussian(deviation: float, *, place: float = 0.0, contended: float = 0.0) -> Source:
    """Two hundred blocks of independent noise; the second trial differs by `place`."""
    rng = random.Random(5)
    blocks = [
        recorded(None)
        if rng.random() < contended
        else recorded(rng.gauss(0, deviation), place + rng.gauss(0, deviation))
        for _ in range(200)
    ]
    return source(*blocks)


def outcomes(
    of: Source, rule: Blocks = EIGHT, *, effect: float = 1.0, studies: int = 600
) -> Outcomes:
    setup = Setup(source=of, run_length=1, arms=Arms.APART, rule=rule, effect=effect)
    return simulate.count(setup, simulate.Order(name="test", seed=1, studies=studies))


def test_a_share_has_the_exact_interval() -> None:
    """Clopper and Pearson's, from published tables and the rule of three."""
    assert share_interval(50, 1000) == (
        pytest.approx(0.03733, abs=1e-4), pytest.approx(0.06539, abs=1e-4)
    )  # fmt: skip
    assert share_interval(0, 100) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    assert share_interval(100, 100) == (pytest.approx(0.025 ** (1 / 100)), 1.0)
    for hits, of in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="is no share"):
            share_interval(hits, of)


def test_a_tape_plays_runs_of_neighbours_and_every_block_as_often() -> None:
    tape = Tape(source(*(recorded(float(i)) for i in range(5))), 3, random.Random(2))
    played = [int(found[0].throughput) for _ in range(3000) if (found := tape.pair())]
    for start in range(0, 3000, 3):
        one, two, three = played[start : start + 3]
        assert (two, three) == ((one + 1) % 5, (one + 2) % 5)
    assert all(500 < played.count(block) < 700 for block in range(5))


def test_a_disturbed_block_has_no_value() -> None:
    tape = Tape(source(recorded(None), recorded(1.0)), 1, random.Random(1))
    found = [tape.pair() for _ in range(50)]
    assert None in found
    assert all(pair is None or pair[0].throughput == 1.0 for pair in found)
    assert all(tape.undisturbed_pair()[0].throughput == 1.0 for _ in range(20))


def test_a_study_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second trial is always 10 % slower: half of the ratios are 0.9, half 1/0.9, and mirrored
    orders cancel it exactly."""
    of = source(recorded(0.0, math.log(0.9)))
    setup = Setup(source=of, run_length=1, arms=Arms.APART, rule=EIGHT, effect=1.05)
    stated = study.simulate(setup, random.Random(1))
    assert stated is not None
    by_hand = estimate([1.05 * 0.9, 1.05 / 0.9] * 4)
    assert by_hand.point == pytest.approx(1.05)
    assert stated.blocks == 8
    assert stated.half_width == pytest.approx(math.log(by_hand.high / by_hand.low) / 2)
    assert stated.verdict == compare_verdict(by_hand, (0.9, 1 / 0.9))
    assert stated.held == (True, True, True, True, True)


def test_gaussian_noise_is_covered_as_promised() -> None:
    """95 % within the error of 600 studies, whatever the place effect cancels."""
    found = outcomes(gaussian(0.02))
    assert 0.925 <= found.share(found.held).point <= 0.975
    bare = found.share(found.bare_faster + found.bare_slower)
    assert 0.025 <= bare.point <= 0.08
    assert found.faster + found.slower <= 3
    assert found.faster + found.slower + found.no_difference + found.undecided == found.studies


def test_a_real_effect_is_found_and_a_small_one_in_large_noise_is_not() -> None:
    clear, hidden = outcomes(gaussian(0.01), effect=1.05), outcomes(gaussian(0.1), effect=1.05)
    assert clear.share(clear.faster).point > 0.95
    assert hidden.share(hidden.faster).point < 0.05
    assert clear.share(clear.held).point > 0.92


def test_a_bias_of_one_arm_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the design cannot cancel, a candidate that is favoured in every block, shows as false
    verdicts and lost coverage."""
    fair = study._Player.play

    def favoured(self: study._Player, block: int) -> bool:
        disturbed = fair(self, block)
        ratio = self._ratios[block]
        self._ratios[block] = ratio._replace(throughput=ratio.throughput + 0.05)
        return disturbed

    monkeypatch.setattr(study._Player, "play", favoured)
    found = outcomes(gaussian(0.02))
    assert found.share(found.held).point < 0.5
    assert not found.meets


def test_a_place_effect_cancels_and_only_widens() -> None:
    found = outcomes(gaussian(0.01, place=0.05))
    assert found.share(found.held).point > 0.975
    assert found.bare_faster + found.bare_slower < 0.025 * found.studies


def selves(of: Source, arms: Arms) -> tuple[list[float], list[float]]:
    """The ratios and the A/A ratios of 500 blocks."""
    rule = Blocks(least=500, most=500, target_half_width=None, most_reruns=0)
    setup = Setup(source=of, run_length=1, arms=arms, rule=rule, effect=1.0)
    player = study._Player(setup, random.Random(7))
    assert not any(player.play(block) for block in range(500))
    return [found.throughput for found in player._ratios.values()], [*player._selves.values()]


def test_the_a_a_arm_shares_the_baseline_as_in_a_real_block() -> None:
    """Two ratios with one trial in common: the same scatter, and half of it together."""
    for arms, together in ((Arms.APART, 0.0), (Arms.SHARED, 0.5)):
        ratios, own = selves(gaussian(0.02), arms)
        assert correlation(ratios, own) == pytest.approx(together, abs=0.1)
        assert stdev(own) == pytest.approx(stdev(ratios), rel=0.1)


def test_what_sets_blocks_apart_is_in_no_ratio() -> None:
    """Trials of two recorded blocks never meet: levels far apart leave the ratios as they were."""
    rng = random.Random(9)
    flat = gaussian(0.01)
    levels = [rng.gauss(0, 1) for _ in flat.stretches[0]]
    steps = source(*(
        recorded(*(log.throughput + level for log in block.trials))
        for block, level in zip(flat.stretches[0], levels, strict=True)
        if block.trials is not None
    ))  # fmt: skip
    for arms in Arms:
        for calm, uneven in zip(selves(flat, arms), selves(steps, arms), strict=True):
            assert uneven == pytest.approx(calm, abs=1e-9)


def test_an_interval_of_half_the_width_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the calibration is for: intervals that promise 95 % and hold less are seen at once."""
    honest = study.estimate

    def boast(values: Iterable[float]) -> Estimate:
        found = honest(values)
        return dataclasses.replace(
            found,
            low=math.sqrt(found.low * found.point),
            high=math.sqrt(found.high * found.point),
        )

    monkeypatch.setattr(study, "estimate", boast)
    found = outcomes(gaussian(0.02))
    assert 0.6 < found.share(found.held).point < 0.85
    assert found.share(found.bare_faster + found.bare_slower).point > 0.15
    assert not found.meets


def test_the_stopping_rule_is_the_sweeps_own(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, loud = (
        outcomes(gaussian(0.002), STOPPING, studies=50),
        outcomes(gaussian(0.2), STOPPING, studies=50),
    )
    assert (quiet.mean_blocks, loud.mean_blocks) == (8.0, 24.0)
    between = outcomes(gaussian(0.022), STOPPING, studies=50)
    assert between.mean_blocks is not None
    assert 8 < between.mean_blocks < 24
    asked = []
    real = stopping.next_block

    def watched(rule: Blocks, ran: object, *, narrow_enough: bool) -> object:
        asked.append(rule)
        return real(rule, ran, narrow_enough=False)  # type: ignore[arg-type]

    monkeypatch.setattr(stopping, "next_block", watched)
    assert outcomes(gaussian(0.022), STOPPING, studies=50).mean_blocks == 24.0
    assert set(map(id, asked)) == {id(STOPPING)}


def test_the_verdict_is_the_gates_own(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = outcomes(gaussian(0.02), effect=1.05)
    monkeypatch.setattr(study, "envelope", lambda _: (1.0, 1.0))
    bare = outcomes(gaussian(0.02), effect=1.05)
    assert bare.faster == bare.bare_faster == honest.bare_faster > honest.faster


def test_disturbed_blocks_are_run_again_within_the_limit_and_then_refused() -> None:
    some, most = outcomes(gaussian(0.02, contended=0.1)), outcomes(gaussian(0.02, contended=0.6))
    assert 0 < some.refused < some.studies / 4
    assert some.mean_blocks == 8.0
    assert most.refused > 0.9 * most.studies
    nothing = outcomes(source(recorded(None)))
    assert (nothing.refused, nothing.stated, nothing.mean_blocks) == (600, 0, None)
    assert not nothing.meets


def test_without_an_envelope_a_ratio_is_judged_as_a_doubling() -> None:
    rng = random.Random(3)
    words = {"worth it": "faster", "not worth it": "slower"}
    for _ in range(300):
        found = estimate([math.exp(rng.gauss(0.01, 0.02)) for _ in range(8)])
        bare = compare_verdict(found, study.NO_ENVELOPE)
        if bare in {"faster", "slower"} or worth_verdict(found) != "undecided":
            assert words[worth_verdict(found)] == bare


@pytest.mark.parametrize(("count", "cut"), [(5, 0), (6, 0), (8, 3), (10, 8), (15, 25), (20, 52)])
def test_the_signed_rank_interval_cuts_what_wilcoxons_table_says(count: int, cut: int) -> None:
    assert intervals._critical(count) == cut
    values = [float(3**i) for i in range(count)]
    low, high = intervals.signed_rank(values)
    averages = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    assert (low, high) == (averages[cut], averages[-1 - cut])


def test_the_bootstrap_is_narrower_than_students_t_and_says_the_same_twice() -> None:
    values = [0.01, -0.02, 0.015, 0.0, 0.03, -0.01, 0.005, 0.02]
    low, high = intervals.bootstrap(values)
    below, above = intervals.student_t(values)
    assert below < low < sum(values) / 8 < high < above
    assert intervals.bootstrap(values) == (low, high)
    assert intervals.bootstrap([0.5] * 8) == (0.5, 0.5)
