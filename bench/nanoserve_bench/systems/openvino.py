"""`openvino`: OpenVINO GenAI's continuous batching on the CPU.

Its own defaults (bf16 products, an 8-bit cache, activations quantised in groups) give other tokens
than float32, so all of them are set. Under its default scheduler, which mixes prefill and decode,
it ignores `max_num_seqs`; slots are kept by admission.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nanoserve_bench.feeding import Burst
from nanoserve_bench.protocol import Trial
from nanoserve_bench.records import SystemRun
from nanoserve_bench.systems.admission import Progress, run_admitted
from nanoserve_bench.systems.environments import Environment
from nanoserve_bench.systems.rivals import Rival, run_converter

BATCH_TOKENS = 512
_BLOCK_TOKENS = 32
_PRECISION = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


class OpenVino(Rival):
    """`ContinuousBatchingPipeline` over a float32 export of the model."""

    summary = "OpenVINO GenAI, continuous batching"
    distribution = "openvino-genai"
    environment = Environment(name="openvino")
    packages: ClassVar[tuple[str, ...]] = ("openvino", "optimum-intel", "transformers", "torch")
    why_closed = "a step of its pipeline keeps Python's lock, so that no request can be handed over"
    attention = "paged"

    def run(self, trial: Trial) -> SystemRun:
        """All prompts at once, `trial.slots` of them inside."""
        return run_admitted(
            _Pipeline(self._pipeline, self._library, self._tensor, self._numbers),
            trial.prompts,
            max_tokens=trial.max_tokens,
            slots=trial.slots,
            feed=Burst(len(trial.prompts)),
            system=self._launch.system,
            settings=self._description.settings(self._launch),
        )

    def _load(self, converted: Path) -> tuple[str, Mapping[str, object]]:
        self._library: Any = importlib.import_module("openvino_genai")
        runtime: Any = importlib.import_module("openvino")
        numpy: Any = importlib.import_module("numpy")
        self._tensor = lambda ids: runtime.Tensor(numpy.array([ids], dtype=numpy.int64))
        kind = f"openvino {runtime.__version__}"
        folder = self._convert(converted, kind, self._export)
        scheduler = self._library.SchedulerConfig()
        settings: dict[str, Any] = {
            "max_num_seqs": self._launch.most_slots,
            "max_num_batched_tokens": BATCH_TOKENS,
            "dynamic_split_fuse": True,
            "enable_prefix_caching": False,
            "cache_size": self._cache_gigabytes(),
        }
        for name, value in settings.items():
            setattr(scheduler, name, value)
        properties = {**_PRECISION, "INFERENCE_NUM_THREADS": self._launch.threads}
        self._numbers = itertools.count()
        self._pipeline = self._library.ContinuousBatchingPipeline(
            str(folder), scheduler, "CPU", properties
        )
        weights = self._prove(_constants(runtime, folder), "openvino-float32")
        return weights, {**settings, **properties}

    def _export(self, target: Path) -> None:
        run_converter(
            str(Path(sys.executable).with_name("optimum-cli")),
            *("export", "openvino", "--model", str(self._folder)),
            *("--task", "text-generation-with-past", "--weight-format", "fp32", str(target)),
        )

    def _cache_gigabytes(self) -> int:
        """Room for every slot at its longest, in the whole gigabytes that it counts in."""
        tokens = self._launch.most_slots * (self._launch.longest + _BLOCK_TOKENS)
        return -(-tokens * self._kv_bytes_per_token // 2**30)


def _constants(runtime: Any, folder: Path) -> Iterator[Any]:
    """Every float32 constant of an exported model, as an array."""
    model = runtime.Core().read_model(str(folder / "openvino_model.xml"))
    for operation in model.get_ops():
        constant = operation.get_type_name() == "Constant"
        if constant and operation.get_element_type() == runtime.Type.f32:
            yield operation.data


class _Pipeline:
    """The pipeline for one trial."""

    def __init__(self, pipeline: Any, library: Any, tensor: Any, numbers: Iterator[int]) -> None:
        self._pipeline = pipeline
        self._library = library
        self._tensor = tensor
        self._numbers = numbers
        self._handles: dict[int, Any] = {}

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        config = self._library.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        number = next(self._numbers)  # never one that an earlier trial used
        self._handles[request] = self._pipeline.add_request(number, self._tensor(prompt), config)

    def step(self) -> Iterable[Progress]:
        self._pipeline.step()
        running = self._library.GenerationStatus.RUNNING
        for request, handle in list(self._handles.items()):
            token_ids: list[int] = []
            while handle.can_read():
                for output in handle.read().values():
                    token_ids += output.generated_ids
            finished = handle.get_status() != running
            if finished:
                del self._handles[request]
            if token_ids or finished:
                yield Progress(request, token_ids, finished)
        if self._handles and not self._pipeline.has_non_finished_requests():
            raise RuntimeError(f"OpenVINO dropped requests {sorted(self._handles)}")
