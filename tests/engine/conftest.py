"""Shared by the engine's tests: small reference models, an engine that tells its logits."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from nanoserve import Engine, EngineConfig, RequestOutput, SamplingParams, StepOutput, backend
from nanoserve.kernels.compile import (
    INSTRUCTION_SETS,
    CannotCompile,
    CompilerFailed,
    compile_kernels,
)
from nanoserve.kernels.library import KernelLibrary, KernelsUnavailable
from nanoserve.model_runner import ModelRunner
from nanoserve.scheduler import SchedulerOutput

torch.set_num_threads(1)

SMALL_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    # Ten times the usual width: logits of several units, so that 1e-4 means something.
    "initializer_range": 0.2,
}


@dataclasses.dataclass(frozen=True)
class Reference:
    """A small random model as transformers has it, and the folder it was saved to."""

    model: Any
    folder: Path

    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """``[tokens, vocab]``, from one forward pass over the whole sequence."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([list(token_ids)])).logits[0]
            return logits

    def greedy(self, prompt: Sequence[int], new_tokens: int) -> list[int]:
        """The tokens that ``generate`` adds to the prompt."""
        output = self.model.generate(
            torch.tensor([list(prompt)]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens


ReferenceMaker = Callable[..., Reference]


@pytest.fixture(scope="session")
def make_reference(tmp_path_factory: pytest.TempPathFactory) -> ReferenceMaker:
    """Make a small random model, a Llama; keyword arguments change its config."""
    made: dict[str, Reference] = {}

    def make(**changes: Any) -> Reference:
        key = repr(sorted(changes.items()))
        if key not in made:
            torch.manual_seed(zlib.crc32(key.encode()))  # the same whatever ran before
            config = AutoConfig.for_model(**{**SMALL_LLAMA, **changes})
            model = AutoModelForCausalLM.from_config(config).eval()
            # transformers starts every norm at one and every bias at zero, which would hide one
            # that is left out.
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.data.uniform_(0.5, 1.5)
                if name.endswith("bias"):
                    parameter.data.normal_()
            folder = tmp_path_factory.mktemp("reference")
            model.save_pretrained(folder)
            made[key] = Reference(model=model, folder=folder)
        return made[key]

    return make


@pytest.fixture(scope="session")
def reference(make_reference: ReferenceMaker) -> Reference:
    """The small random Llama."""
    return make_reference()


@pytest.fixture(scope="session")
def compile_or_skip() -> Callable[[Path], None]:
    """Compile all kernels: no compiler, no tests; but sources that do not compile are a failure."""

    def compile_all(into: Path) -> None:
        try:
            faults = compile_kernels(into).faults
        except CompilerFailed:
            raise
        except CannotCompile as reason:
            pytest.skip(str(reason))
        if faults:
            pytest.fail("\n".join(faults))

    return compile_all


@pytest.fixture(scope="session")
def kernel_libraries(
    tmp_path_factory: pytest.TempPathFactory, compile_or_skip: Callable[[Path], None]
) -> dict[str, KernelLibrary]:
    """The kernels as they stand in the sources, for every instruction set of this processor."""
    folder = tmp_path_factory.mktemp("kernels")
    compile_or_skip(folder)
    capability = torch.backends.cpu.get_cpu_capability().lower()
    names = [instruction_set.name for instruction_set in INSTRUCTION_SETS]
    # The sets are listed widest first, and a processor that has one has those behind it.
    usable = INSTRUCTION_SETS[names.index(capability) :] if capability in names else ()
    return {each.name: KernelLibrary(each, folder) for each in usable}


@pytest.fixture(params=["avx512", "avx2"])
def kernels(
    request: pytest.FixtureRequest, kernel_libraries: dict[str, KernelLibrary]
) -> KernelLibrary:
    """The kernels, compiled for each instruction set in turn."""
    if request.param not in kernel_libraries:
        pytest.skip(f"this processor has no {request.param}")
    return kernel_libraries[request.param]


@pytest.fixture
def on_kernels(kernels: KernelLibrary, monkeypatch: pytest.MonkeyPatch) -> KernelLibrary:
    """Engines made in the test run on these kernels."""
    monkeypatch.setattr(backend, "load_kernels", lambda: kernels)
    return kernels


@pytest.fixture(params=["avx512", "avx2", "torch"])
def every_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Engines made in the test run on the kernels, or on torch, in turn."""
    path: str = request.param
    libraries = {} if path == "torch" else request.getfixturevalue("kernel_libraries")
    if path != "torch" and path not in libraries:
        pytest.skip(f"this processor has no {path}")

    def load() -> KernelLibrary:
        if path == "torch":
            raise KernelsUnavailable("the test asks for torch")
        library: KernelLibrary = libraries[path]
        return library

    monkeypatch.setattr(backend, "load_kernels", load)
    return path


class LogitsRecorder(ModelRunner):
    """A model runner that keeps what it computed: ``{(request id, position): logits}``."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.seen: dict[tuple[str, int], torch.Tensor] = {}
        self.passes: list[tuple[tuple[str, int, int, bool], ...]] = []

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        logits = super().run(plan)
        self.passes.append(
            tuple((r.request.request_id, r.start, r.length, r.is_prefill) for r in plan.rows)
        )
        sampling = [row for row in plan.rows if row.samples]
        for row, values in zip(sampling, logits, strict=True):
            self.seen[row.request.request_id, row.start + row.length] = values.clone()
        return logits


@dataclasses.dataclass
class Run:
    """What came of some requests."""

    outputs: dict[str, RequestOutput]
    steps: list[StepOutput]
    runner: LogitsRecorder

    def worst_logit(self, reference: Reference) -> float:
        """Largest difference of any logit of any token of any request from the reference's."""
        worst = 0.0
        for output in self.outputs.values():
            sequence = output.prompt_token_ids + output.token_ids
            wanted = reference.logits(sequence)
            for position in range(len(output.prompt_token_ids), len(sequence)):
                got = self.runner.seen[output.request_id, position]
                worst = max(worst, (got - wanted[position - 1]).abs().max().item())
        return worst


def drain(engine: Engine, *, most_steps: int = 2000) -> list[StepOutput]:
    """Step until nothing is left, and check the law of conservation after each step."""
    steps = []
    for _ in range(most_steps):
        if not engine.has_unfinished():
            return steps
        steps.append(engine.step())
        engine.check_integrity()
    raise AssertionError(f"not finished after {most_steps} steps")


@pytest.fixture
def run_requests() -> Callable[..., Run]:
    """Run prompts through an engine, and keep outputs, steps and logits."""

    def run(
        model: Path | str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        **settings: Any,
    ) -> Run:
        config = EngineConfig(model=str(model), **settings)
        runner = LogitsRecorder(config)
        engine = Engine(config, runner=runner)
        several = itertools.repeat(params) if isinstance(params, SamplingParams) else params
        for index, (prompt, wanted) in enumerate(zip(prompts, several, strict=False)):
            engine.add_request(str(index), list(prompt), wanted)
        steps = drain(engine)
        outputs = {output.request_id: output for step in steps for output in step.outputs}
        return Run(outputs=outputs, steps=steps, runner=runner)

    return run
