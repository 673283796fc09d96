"""`hf-generate`: transformers' `model.generate`, one request at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nanoserve_bench.feeding import Feeder
from nanoserve_bench.models import tokenizer_digest
from nanoserve_bench.protocol import Description, Divergence, Launch, Triage, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.runners import run_queued, run_serial
from nanoserve_bench.systems import System


class HfGenerate(System):
    """Greedy `generate` for one prompt after the other, each token stamped by a processor."""

    summary = "transformers generate, one request at a time"
    shape = Shape.SERIAL
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens")
    requires = ("torch", "transformers", "nanoserve")
    distribution = "transformers"
    triages = True
    open_loop = True

    def __init__(self, launch: Launch) -> None:
        # torch and transformers, which the sweep does not import to plan.
        from nanoserve_bench.systems import hf_model  # noqa: PLC0415

        self._launch = launch
        self._model = hf_model.load_model(
            launch.model_path, device=launch.device, dtype=launch.dtype
        )
        self._generate = hf_model.hf_generate_one(self._model, timed="first_token" in self.stamps)
        self._description = describe(self, launch, self._model)

    def describe(self) -> Description:
        """What was loaded."""
        return self._description

    def run(self, trial: Trial) -> SystemRun:
        """One prompt after the other; in an open loop from a queue, as they come."""
        if trial.due_ns:
            return run_queued(
                trial.prompts,
                self._generate,
                feed=Feeder(trial.due_ns),
                max_tokens=trial.max_tokens,
                system=self._launch.system,
                settings=self._description.settings(self._launch),
                cached_tokens=0,
            )
        return run_serial(
            trial.prompts,
            self._generate,
            max_tokens=trial.max_tokens,
            system=self._launch.system,
            settings=self._description.settings(self._launch),
            cached_tokens=0,
        )

    def triage(self, divergence: Divergence) -> Triage:
        """Teacher forcing by this model."""
        from transformers import AutoTokenizer  # noqa: PLC0415 - only a divergence needs it

        from nanoserve_bench.systems.teacher_forcing import triage  # noqa: PLC0415

        folder = Path(self._launch.model_path)
        has_tokenizer = tokenizer_digest(folder) != "none"
        tokenizer = AutoTokenizer.from_pretrained(folder) if has_tokenizer else None
        return triage(self._model, divergence, tokenizer)


class HfGenerateUntimed(HfGenerate):
    """The same without the processor: set against `hf-generate`, it shows what stamping costs."""

    summary = "the same without the stamps, to see what stamping costs"
    stamps: ClassVar[tuple[str, ...]] = ("holds",)
    variant_of = "hf-generate"


def describe(system: System, launch: Launch, model: Any) -> Description:
    """What a system that runs a transformers model says about itself.

    Args:
        system: The system, for what it stamps.
        launch: What was asked for.
        model: The loaded model.
    """
    import torch  # noqa: PLC0415 - the sweep does not import it to plan

    from nanoserve.models.digest import weights_digest  # noqa: PLC0415
    from nanoserve_bench.systems import hf_model, torch_facts  # noqa: PLC0415

    return Description(
        version=system.version(),
        revision=None,
        shape=system.shape.value,
        stamps=system.stamps,
        device_name=torch_facts.device_name(launch.device),
        dtype=str(model.dtype).removeprefix("torch."),
        matmul_precision=torch_facts.matmul_precision(launch.device, launch.dtype),
        threads=torch.get_num_threads(),
        weights=weights_digest(model.state_dict().items()),
        weight_bytes_per_step=hf_model.weight_bytes_per_step(model),
        tokenizer=tokenizer_digest(Path(launch.model_path)),
        attention=model.config._attn_implementation,  # noqa: SLF001 - told nowhere else
        cache="off",
        decoding="greedy;ignore_eos",
        kernel_path="torch",
        libraries=torch_facts.libraries("torch", "transformers", "tokenizers", "numpy"),
    )
