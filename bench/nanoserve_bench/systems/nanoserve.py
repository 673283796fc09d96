"""`nanoserve`: this project's engine, all requests at once."""

from __future__ import annotations

import math
import runpy
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from nanoserve_bench import caches, revision
from nanoserve_bench.models import tokenizer_digest
from nanoserve_bench.protocol import Description, Launch, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.runners import run_concurrent
from nanoserve_bench.systems import System

_BLOCK_SIZE = 16


class Nanoserve(System):
    """The engine with as many slots as a trial asks for; weights and KV pool are loaded once."""

    summary = "this engine: paged KV cache, continuous batching"
    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens", "steps")
    requires = ("torch", "nanoserve")
    distribution = "nanoserve"
    revisable = True
    open_loop = True
    options: ClassVar[Mapping[str, str]] = MappingProxyType({caches.OPTION: caches.MEANING})
    kernel: ClassVar[str] = "auto"

    def __init__(self, launch: Launch) -> None:
        # torch and the engine, which the sweep does not import to plan.
        from nanoserve import EngineConfig  # noqa: PLC0415
        from nanoserve.model_runner import ModelRunner  # noqa: PLC0415

        self._launch = launch
        self._config = EngineConfig(
            model=launch.model_path,
            device=launch.device,
            dtype=launch.dtype,
            max_slots=launch.most_slots,
            max_model_len=launch.longest,
            # Whole blocks for every slot, so that no request is ever preempted.
            block_size=_BLOCK_SIZE,
            kv_pool_tokens=launch.most_slots * -(-launch.longest // _BLOCK_SIZE) * _BLOCK_SIZE,
            kernel=self.kernel,
        )
        self._caches = caches.state_of({o.name: o.value for o in launch.options}) == "on"
        if self._caches:  # an older revision need not know the setting
            self._config = replace(self._config, prefix_cache=True)
        self._runner = ModelRunner(self._config)
        self._description = self._describe()

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Refuse a cache that is neither on nor off."""
        caches.state_of(options)

    @classmethod
    def version(cls) -> str:
        """Version of the engine, read without importing it, whether it is installed or not."""
        spec = find_spec("nanoserve")
        if spec is None or spec.origin is None:
            raise PackageNotFoundError(cls.distribution)
        return str(runpy.run_path(str(Path(spec.origin).with_name("_version.py")))["__version__"])

    def describe(self) -> Description:
        """What was loaded."""
        return self._description

    def run(self, trial: Trial) -> SystemRun:
        """All prompts at once, or each when due, in `trial.slots` slots; nothing is cached yet."""
        from nanoserve import Engine, SamplingParams  # noqa: PLC0415

        engine = Engine(replace(self._config, max_slots=trial.slots), runner=self._runner)
        return run_concurrent(
            engine,
            trial.prompts,
            [
                SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
                for tokens in trial.max_tokens
            ],
            slots=trial.slots,
            system=self._launch.system,
            settings=self._description.settings(self._launch),
            cached_tokens=None if self._caches else 0,
            due_ns=trial.due_ns,
        )

    def _describe(self) -> Description:
        from nanoserve import Engine  # noqa: PLC0415
        from nanoserve_bench.systems import torch_facts  # noqa: PLC0415

        launch, engine = self._launch, Engine(self._config, runner=self._runner).describe()
        return Description(
            version=engine.version,
            revision=revision.commit_of("nanoserve"),
            shape=self.shape.value,
            stamps=self.stamps,
            device_name=torch_facts.device_name(launch.device),
            dtype=engine.dtype,
            matmul_precision=torch_facts.matmul_precision(launch.device, engine.dtype),
            threads=engine.threads,
            weights=engine.weights_digest,
            weight_bytes_per_step=self._weight_bytes_per_step(),
            tokenizer=tokenizer_digest(Path(launch.model_path)),
            attention=engine.attention_path,
            cache=engine.prefix_cache,
            decoding="greedy;ignore_eos",
            kernel_path=engine.kernel_path,
            libraries=torch_facts.libraries("torch", "nanoserve", "numpy"),
        )

    def _weight_bytes_per_step(self) -> int:
        """All weights once, but for an embedding table that the head does not share."""
        from nanoserve.models.digest import EMBEDDING  # noqa: PLC0415
        from nanoserve.models.parameters import parameter_shapes  # noqa: PLC0415

        shapes = parameter_shapes(self._runner.model_config)
        if not self._runner.model_config.tie_word_embeddings:
            del shapes[EMBEDDING]
        return sum(map(math.prod, shapes.values())) * self._config.torch_dtype.itemsize


class NanoserveTorch(Nanoserve):
    """The same without the compiled kernels: what the engine is worth where none can run.

    No `variant_of`: another kernel path is another system, and no self pair of `nanoserve`.
    """

    summary = "the same in pure torch, without the compiled kernels"
    kernel = "torch"
