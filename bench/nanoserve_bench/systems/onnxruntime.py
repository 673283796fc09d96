"""`onnxruntime`: ONNX Runtime GenAI on the CPU, in static batches.

It pads on the right only, its own request scheduler runs no more than four rows, and nothing makes
it ignore an end of sequence: another id, one that no text holds, is declared as the end. A row that
made it all the same would stop short, which the gate refuses.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nanoserve_bench.models import added_ids, named_ids
from nanoserve_bench.protocol import Trial
from nanoserve_bench.records import SystemRun
from nanoserve_bench.systems.environments import Environment
from nanoserve_bench.systems.rivals import Rival, run_converter
from nanoserve_bench.systems.static_batches import WHY_CLOSED, GeneratedBatch, run_static

_PADDING = 0
_MATRIX = 2


class OnnxRuntime(Rival):
    """One `Generator` a batch over a float32 export of the model."""

    summary = "ONNX Runtime GenAI, right-padded static batches"
    distribution = "onnxruntime-genai"
    why_closed = WHY_CLOSED
    environment = Environment(name="onnxruntime")
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx-ir", "transformers", "torch")
    attention = "GroupQueryAttention"

    def run(self, trial: Trial) -> SystemRun:
        """Batches of `trial.slots` prompts."""
        return run_static(
            trial.prompts,
            self._generate,
            max_tokens=trial.max_tokens,
            slots=trial.slots,
            system=self._launch.system,
            settings=self._description.settings(self._launch),
        )

    def _load(self, converted: Path) -> tuple[str, Mapping[str, object]]:
        self._library: Any = importlib.import_module("onnxruntime_genai")
        self._numpy: Any = importlib.import_module("numpy")
        folder = self._convert(converted, f"onnx {self._library.__version__}", self._export)
        settings = {
            "eos_token_id": self._unused_id(),
            "pad_token_id": _PADDING,
            "intra_op_num_threads": self._launch.threads,
        }
        config = self._library.Config(str(folder))
        threads = {"intra_op_num_threads": settings["intra_op_num_threads"]}
        config.overlay(
            json.dumps(
                {
                    "model": {
                        "eos_token_id": settings["eos_token_id"],
                        "pad_token_id": settings["pad_token_id"],
                        "decoder": {"session_options": threads},
                    }
                }
            )
        )
        self._model = self._library.Model(config)
        return self._prove(_constants(folder, *self._widths()), "onnx-float32"), settings

    def _export(self, target: Path) -> None:
        run_converter(
            *(sys.executable, "-P", "-m", "onnxruntime_genai.models.builder"),
            *("-i", str(self._folder), "-o", str(target), "-p", "fp32", "-e", "cpu"),
            *("-c", str(target.with_name("cache"))),
        )

    def _widths(self) -> tuple[int, int]:
        """Rows of the query projection, and of the key or value projection."""
        heads, kv_heads, width = self._heads
        return heads * width, kv_heads * width

    def _unused_id(self) -> int:
        """A special id without a role of its own; where there is none, the last one."""
        unused = set(added_ids(self._folder)) - set(named_ids(self._folder, self._config))
        return max(unused, default=self._config["vocab_size"] - 1)

    def _generate(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> GeneratedBatch:
        longest = max(map(len, prompts))
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(
            batch_size=len(prompts),
            max_length=longest + max_tokens,
            do_sample=False,
            num_beams=1,
        )
        generator = self._library.Generator(self._model, parameters)
        generator.append_tokens(
            self._numpy.array(
                [[*prompt, *[_PADDING] * (longest - len(prompt))] for prompt in prompts],
                dtype=self._numpy.int32,
            )
        )
        steps: list[list[int]] = []
        stamps: list[int] = []
        while len(steps) < max_tokens and not generator.is_done():
            generator.generate_next_token()
            stamps.append(time.monotonic_ns())
            steps.append([int(token) for token in generator.get_next_tokens()])
        return GeneratedBatch(tuple(zip(*steps, strict=True)), tuple(stamps))


def _constants(folder: Path, query: int, key: int) -> Iterator[Any]:
    """Every float32 initializer of an exported model; the packed projections taken apart again."""
    ir: Any = importlib.import_module("onnx_ir")
    for value in ir.load(folder / "model.onnx").graph.initializers.values():
        if value.dtype != ir.DataType.FLOAT:
            continue
        tensor = value.const_value.numpy()
        if tensor.ndim == _MATRIX and tensor.shape[1] == query + 2 * key:
            yield tensor[:, :query]
            yield tensor[:, query : query + key]
            yield tensor[:, query + key :]
        else:
            yield tensor
