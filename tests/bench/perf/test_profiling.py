"""The profile of a step: its phases add up, and what cannot run is a row that says why."""

from __future__ import annotations

import math

from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.profile import ProfileRow
from nanoserve_bench.perf.profiling import BY_ITSELF, Variant, row_of, take_profile


def phases(rows: tuple[ProfileRow, ...], variant: str) -> dict[str, ProfileRow]:
    return {row.phase: row for row in rows if row.variant == variant}


def test_a_row_is_the_median_and_the_quartiles() -> None:
    variant = Variant(name="a", kernel="plain")
    row = row_of(variant, 8, "step", [3_000_000, 1_000_000, 2_000_000], how="a stopwatch")
    assert (row.seconds, row.low, row.high, row.repetitions) == (0.002, 0.001, 0.003, 3)
    alone = row_of(variant, 8, "attention", [1_000], how="a difference")
    assert (alone.seconds, alone.low, alone.high) == (1e-6, None, None)


def test_the_phases_of_a_step_on_a_tiny_model(tiny: ModelFolder) -> None:
    variants = (
        Variant(name="before", kernel="plain"),
        Variant(name="packed", kernel="packed"),
        Variant(name="after", kernel="compiled"),
    )
    taken = take_profile(
        tiny,
        threads=1,
        say=lambda _: None,
        variants=variants,
        rows=(2,),
        repetitions=20,
    )
    for name in ("before", "packed"):
        found = phases(taken.rows, name)
        assert set(found) == {
            *("step", "model", "batch assembly", "sampler", "scheduler and bookkeeping"),
            *("linears", "attention", "rest of the model"),
        }
        assert all(row.repetitions >= 20 for row in found.values())
        parts = [row.seconds for phase, row in found.items() if phase not in {"step", "model"}]
        assert all(part is not None and part > 0 for part in parts)
        # Medians add up only roughly.
        assert found["step"].seconds is not None
        assert math.isclose(sum(p for p in parts if p), found["step"].seconds, rel_tol=0.5)
    after = phases(taken.rows, "after")
    # The tiny model's heads are too narrow for the kernels of a wide register: then it says so.
    if after["step"].seconds is None:
        assert "not on compiled kernels" in after["step"].how
    else:
        assert after["linears"].how == BY_ITSELF


def test_a_variant_that_fails_is_a_row_without_a_number(tiny: ModelFolder) -> None:
    broken = Variant(name="broken", kernel="no such kernel")
    said: list[str] = []
    taken = take_profile(tiny, threads=1, say=said.append, variants=(broken,), rows=(1, 2))
    assert [(row.rows, row.seconds) for row in taken.rows] == [(1, None), (2, None)]
    assert all("no such kernel" in row.how for row in taken.rows)
    assert any("broken failed" in line for line in said)
