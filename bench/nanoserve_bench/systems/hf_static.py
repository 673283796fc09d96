"""`hf-static`: transformers' `model.generate` over left-padded batches of n requests."""

from __future__ import annotations

from typing import ClassVar

from nanoserve_bench.protocol import Description, Launch, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.systems import System
from nanoserve_bench.systems.hf_generate import describe
from nanoserve_bench.systems.static_batches import WHY_CLOSED, run_static


class HfStatic(System):
    """Greedy `generate` for one batch after the other; a row is held until its batch returns."""

    summary = "transformers generate over left-padded batches, in order of arrival"
    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens")
    requires = ("torch", "transformers", "nanoserve")
    distribution = "transformers"
    why_closed = WHY_CLOSED
    by_length: ClassVar[bool] = False

    def __init__(self, launch: Launch) -> None:
        # torch and transformers, which the sweep does not import to plan.
        from nanoserve_bench.systems import hf_model  # noqa: PLC0415

        self._launch = launch
        model = hf_model.load_model(launch.model_path, device=launch.device, dtype=launch.dtype)
        self._generate = hf_model.hf_generate_batch(model)
        self._description = describe(self, launch, model)

    def describe(self) -> Description:
        """What was loaded."""
        return self._description

    def run(self, trial: Trial) -> SystemRun:
        """Batches of `trial.slots` prompts."""
        return run_static(
            trial.prompts,
            self._generate,
            max_tokens=trial.max_tokens,
            slots=trial.slots,
            by_length=self.by_length,
            system=self._launch.system,
            settings=self._description.settings(self._launch),
        )


class HfStaticSorted(HfStatic):
    """The same over prompts sorted by length, so that a batch holds little padding."""

    summary = "the same, prompts sorted by length"
    by_length = True
