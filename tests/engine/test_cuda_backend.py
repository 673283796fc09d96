"""The card's backend without a card: attention in Triton's interpreter, decode steps "recorded".

A recording that simply runs the step again reads the same buffers at the same places, so what a
graph would be given, and what it would be padded with, is tried here as it is on a card.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
import torch

from nanoserve import Engine, EngineConfig, SamplingParams, backend
from nanoserve.kernels.library import KernelsUnavailable
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS
from nanoserve.torch_backend import TorchBackend

pytest.importorskip("triton", reason="no Triton here: it comes for Linux only")

from nanoserve import cuda_backend
from nanoserve.cuda_backend import CudaBackend
from nanoserve.decode_graphs import Step
from nanoserve.kernels import triton_attention

pytestmark = [
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="there is a card: test_cuda runs all this on it"
    ),
    # A padded row holds whatever its memory held, and NumPy warns of what it computes from that.
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
]

CPU = torch.device("cpu")
TINY = SYNTHETIC_CONFIGS["tiny-llama"]


class Recorder:
    """Runs a recorded step again, and notes for how many rows."""

    def __init__(self) -> None:
        self.recorded: list[int] = []
        self.replayed: list[int] = []

    def __call__(self, step: Step) -> Step:
        rows = len(step())
        self.recorded.append(rows)

        def replay() -> torch.Tensor:
            self.replayed.append(rows)
            return step()

        return replay


def refuse() -> Any:
    raise RuntimeError("operation not permitted\nwhen stream is capturing")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Engines made in the test run on the card's backend, on the CPU, and record with this."""
    recorder = Recorder()
    on_cuda_backend(monkeypatch, lambda: recorder)
    return recorder


@pytest.fixture
def shallow(make_reference: Any) -> Any:
    """One layer: the interpreter is slow, and these tests are not about depth."""
    return make_reference(num_hidden_layers=1)


def on_cuda_backend(monkeypatch: pytest.MonkeyPatch, recorder: Any) -> None:
    def choose(settings: EngineConfig, config: Any, *, max_positions: int) -> CudaBackend:
        return CudaBackend(
            config,
            device=CPU,
            dtype=settings.torch_dtype,
            max_positions=max_positions,
            max_slots=settings.max_slots,
            recorder=recorder,
        )

    monkeypatch.setattr("nanoserve.model_runner.choose_backend", choose)


PROMPTS = [[5, 6, 7], [9] * 17, [20, 17], [44, 1, 2, 3, 4], [8]]
PARAMS = [SamplingParams(max_tokens=n) for n in (9, 4, 7, 2, 6)]


def test_logits_agree_with_transformers(
    recorder: Recorder, reference: Any, run_requests: Any
) -> None:
    """Three slots and five requests: prompts join in while others decode, buckets are not full."""
    run = run_requests(reference.folder, PROMPTS, PARAMS, max_slots=3, block_size=4)
    assert run.worst_logit(reference) < 1e-4
    assert recorder.recorded == [3, 2, 1]
    assert set(recorder.replayed) == {1, 2, 3}


def test_a_padded_step_is_the_step_without_padding(
    recorder: Recorder, shallow: Any, run_requests: Any
) -> None:
    """Three rows in a bucket of four, and the same three in a bucket of three."""
    padded = run_requests(shallow.folder, PROMPTS[:3], SamplingParams(max_tokens=5), max_slots=4)
    assert set(recorder.replayed) == {4}
    exact = run_requests(shallow.folder, PROMPTS[:3], SamplingParams(max_tokens=5), max_slots=3)
    assert padded.runner.seen.keys() == exact.runner.seen.keys()
    for key, logits in exact.runner.seen.items():
        torch.testing.assert_close(padded.runner.seen[key], logits, rtol=0, atol=1e-5)


def test_a_preempted_request_comes_back(
    recorder: Recorder, shallow: Any, run_requests: Any
) -> None:
    """Blocks change hands without being cleaned, and nobody sees what was in them."""
    run = run_requests(
        shallow.folder,
        [[7] * 8, [3] * 9, [5] * 10],
        SamplingParams(max_tokens=12),
        max_slots=3,
        block_size=4,
        kv_pool_tokens=36,
    )
    assert any(len(output.timings.holds) > 1 for output in run.outputs.values())
    assert run.worst_logit(shallow) < 1e-4


def test_prompts_in_pieces_agree_with_transformers(
    recorder: Recorder, shallow: Any, run_requests: Any
) -> None:
    """Pieces of prompts beside decode rows; steps that give no token at all; a piece of one."""
    run = run_requests(
        shallow.folder,
        [[7] * 17, [3, 4], [5] * 21],
        SamplingParams(max_tokens=5),
        max_slots=2,
        block_size=4,
        max_batch_tokens=8,
    )
    assert any(step.holders and not step.tokens for step in run.steps)
    rows = [row for rows in run.runner.passes for row in rows]
    assert any(length == 1 and prefill for *_, length, prefill in rows)
    assert run.worst_logit(shallow) < 1e-4


def test_where_nothing_can_be_recorded_every_step_is_launched(
    shallow: Any,
    run_requests: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_cuda_backend(monkeypatch, refuse)
    run = run_requests(shallow.folder, PROMPTS, PARAMS, max_slots=3)
    assert run.worst_logit(shallow) < 1e-4
    assert run.runner.kernel_path == "torch:F.linear, triton:pointwise"
    assert "without CUDA graphs, and slower: operation not permitted" in caplog.text


def test_the_description_says_what_runs(recorder: Recorder) -> None:
    description = Engine(EngineConfig(model="synthetic:tiny-llama", max_slots=1)).describe()
    assert description.kernel_path == ("torch:F.linear, triton:pointwise, decoding in CUDA graphs")
    assert description.attention_path == "triton:through block tables"
    assert description.matmul_precision == "highest"


def test_float32_is_put_back_to_ieee(recorder: Recorder) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        Engine(EngineConfig(model="synthetic:tiny-llama", max_slots=1))
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("fault", ["no C compiler", "something else"])
def test_without_working_kernels_torch_runs(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(queries: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if fault == "no C compiler":
            raise RuntimeError("no C compiler\nanywhere")
        return queries.flatten(1) + 1

    monkeypatch.setattr(triton_attention, "paged_attention", broken)
    with pytest.raises(KernelsUnavailable, match=fault):
        triton_attention.check(TINY, device=CPU, dtype=torch.float32)

    def unavailable(*_: Any, **__: Any) -> None:
        raise KernelsUnavailable(fault)

    monkeypatch.setattr(cuda_backend, "check", unavailable)
    monkeypatch.setattr(CudaBackend, "_on_device", lambda _self: contextlib.nullcontext())
    settings = EngineConfig(model="synthetic:tiny-llama", device="cuda")
    chosen = backend.choose_backend(settings, TINY, max_positions=16)
    assert isinstance(chosen, TorchBackend)
    assert f"torch is slower here: {fault}" in caplog.text


def test_where_only_the_pointwise_kernels_fail_torch_takes_their_place(
    shallow: Any,
    run_requests: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unavailable(*_: Any, **__: Any) -> None:
        raise KernelsUnavailable("no room for them")

    monkeypatch.setattr(cuda_backend, "check_pointwise", unavailable)
    on_cuda_backend(monkeypatch, Recorder)
    run = run_requests(shallow.folder, PROMPTS[:2], PARAMS[:2], max_slots=2)
    assert run.worst_logit(shallow) < 1e-4
    path = "torch:F.linear, torch:pointwise, decoding in CUDA graphs"
    assert run.runner.kernel_path == path
    assert "norms, rotation and gate, and slower: no room for them" in caplog.text


def test_without_triton_torch_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "nanoserve.cuda_backend", None)
    settings = EngineConfig(model="synthetic:tiny-llama", device="cuda")
    assert isinstance(backend.choose_backend(settings, TINY, max_positions=16), TorchBackend)
    assert "Triton's kernels are not used" in caplog.text
