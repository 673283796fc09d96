"""The profile of a step: its phases add up, and what cannot run is a row that says why."""

from __future__ import annotations

import dataclasses
import math

from nanoserve_bench.models import ModelFolder
from nanoserve_bench.perf.profile import ONE_READ, ProfileRow
from nanoserve_bench.perf.profiling import BY_ITSELF, BY_READING, Variant, row_of, take_profile


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
        Variant(name="after", kernel="compiled"),
        Variant(name="broken", kernel="no such kernel"),
    )
    said: list[str] = []
    # Weights of so many bytes would take far longer to read than the engine's own Python.
    model = dataclasses.replace(tiny, weight_bytes=2**27)
    taken = take_profile(
        model, threads=1, say=said.append, variants=variants, rows=(2,), repetitions=20
    )
    found = phases(taken.rows, "before")
    assert set(found) == {
        *("step", "model", "batch assembly", "sampler", "scheduler and bookkeeping"),
        *("linears", "attention", "rest of the model", ONE_READ),
    }
    assert all(row.repetitions >= 20 for row in found.values())
    beside = {"step", "model", ONE_READ}
    parts = [row.seconds for phase, row in found.items() if phase not in beside]
    assert all(part is not None and part > 0 for part in parts)
    # Medians add up only roughly.
    assert found["step"].seconds is not None
    assert math.isclose(sum(p for p in parts if p), found["step"].seconds, rel_tol=0.5)

    after = phases(taken.rows, "after")
    if after["step"].seconds is None:  # a machine without the instructions or a compiler
        assert "not on compiled kernels" in after["step"].how
    else:
        assert set(after) == set(found)
        assert after["linears"].how == BY_ITSELF
    assert found[ONE_READ].how == BY_READING
    assert found[ONE_READ].seconds is not None
    bookkeeping = found["scheduler and bookkeeping"].seconds
    assert bookkeeping is not None
    assert bookkeeping < found[ONE_READ].seconds / 2  # the reads are no part of the steps

    broken = phases(taken.rows, "broken")["step"]
    assert broken.seconds is None
    assert "no such kernel" in broken.how
    assert any("broken failed" in line for line in said)
