"""On a CUDA card: the tokens of transformers, whichever kernels and graphs compute them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig

from nanoserve import Engine, EngineConfig, SamplingParams
from nanoserve.decode_graphs import DecodeBuffers, GraphRecorder, Step
from nanoserve.model_runner import ModelRunner
from nanoserve.models.weights import packaged_gguf

pytest.importorskip("triton", reason="no Triton here: it comes for Linux only")

from nanoserve.cuda_backend import CudaBackend

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

LENGTHS = (1, 6, 15, 16, 17, 33, 6, 40) * 5
NEW_TOKENS = 24
SLOTS = 64


def settings(**changes: Any) -> EngineConfig:
    defaults = {"device": "cuda", "max_slots": SLOTS, "max_model_len": 512}
    return EngineConfig(**{"model": "smollm2-135m", **defaults, **changes})


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(44)
    return [[rng.randrange(17, 49_152) for _ in range(n)] for n in (LENGTHS * 2)[:count]]


def generate(
    runner: ModelRunner, batch: Sequence[Sequence[int]], *, slots: int, new_tokens: int = NEW_TOKENS
) -> list[list[int]]:
    engine = Engine(settings(max_slots=slots), runner=runner)
    for index, prompt in enumerate(batch):
        engine.add_request(
            str(index), list(prompt), SamplingParams(max_tokens=new_tokens, ignore_eos=True)
        )
    outputs = {}
    while engine.has_unfinished():
        outputs |= {output.request_id: output for output in engine.step().outputs}
    assert all(output.error is None for output in outputs.values())
    return [outputs[str(index)].token_ids for index in range(len(batch))]


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    """The real weights in float32, with Triton's attention and CUDA graphs."""
    return ModelRunner(settings())


@pytest.fixture(scope="module")
def hf() -> Any:
    path = packaged_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent),
        gguf_file=path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    return model.eval().to("cuda")


@pytest.fixture(scope="module")
def generated(hf: Any) -> list[list[int]]:
    """What ``generate`` says to each prompt alone."""
    outputs = []
    for prompt in prompts(40):
        ids = torch.tensor([prompt], device="cuda")
        output = hf.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        outputs.append(output[0, len(prompt) :].tolist())
    return outputs


@pytest.mark.weights
@pytest.mark.parametrize("slots", [1, 3, 8, 32, 64])
def test_tokens_are_those_of_generate(
    slots: int, runner: ModelRunner, generated: list[list[int]]
) -> None:
    count = 8 if slots == 1 else 40
    assert generate(runner, prompts(count), slots=slots) == generated[:count]


@pytest.mark.weights
def test_the_description_says_what_runs(runner: ModelRunner) -> None:
    description = Engine(settings(), runner=runner).describe()
    assert description.kernel_path == ("torch:F.linear, triton:pointwise, decoding in CUDA graphs")
    assert description.attention_path == "triton:through block tables"
    assert description.matmul_precision == "highest"


@pytest.mark.usefixtures("runner")
def test_a_float32_product_is_no_tf32() -> None:
    """TF32 keeps 10 bits of each factor: its products are off by a few parts in ten thousand."""
    torch.manual_seed(0)
    left, right = torch.randn(2, 512, 512, device="cuda", dtype=torch.float32)
    exact = left.double() @ right.double()
    error = ((left @ right).double() - exact).norm() / exact.norm()
    assert error < 1e-6


@pytest.mark.weights
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_a_replay_computes_what_launching_computes(
    dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same buffers, padding included, recorded and launched."""
    pairs: list[tuple[Step, Step]] = []

    class Both(GraphRecorder):
        def __call__(self, step: Step) -> Step:
            replay = super().__call__(step)
            pairs.append((step, replay))
            return replay

    filled: list[int] = []
    fill = DecodeBuffers.fill

    def spy(self: DecodeBuffers, rows: Any, bucket: int) -> None:
        fill(self, rows, bucket)
        filled.append(bucket)

    defaults = CudaBackend.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "recorder", Both)
    monkeypatch.setattr(DecodeBuffers, "fill", spy)
    runner = ModelRunner(settings(dtype=dtype, max_slots=8))
    assert len(pairs) == 4
    generate(runner, prompts(7), slots=7, new_tokens=9)
    assert set(filled) == {8}
    launch, replay = pairs[0]
    with torch.inference_mode():
        recorded = replay().clone()
        torch.testing.assert_close(launch(), recorded, rtol=0, atol=tolerance)
    assert recorded.isfinite().all()


@pytest.mark.weights
def test_triton_and_torch_compute_the_same(
    run_requests: Callable[..., Any], reference: Any
) -> None:
    """A small model, prompts joining decode rows in blocks of an odd size, on both backends."""
    batch = [[5, 6, 7], [9] * 70, [20, 17], [44, 1, 2, 3, 4], [8] * 33]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (30, 4, 27, 12, 6)]
    common = {"max_slots": 3, "block_size": 5, "device": "cuda", "max_batch_tokens": 32}
    ours = run_requests(reference.folder, batch, params, **common)
    twin = run_requests(reference.folder, batch, params, kernel="torch", **common)
    assert "triton" in ours.runner.attention_path
    assert "torch" in twin.runner.attention_path
    assert ours.runner.seen.keys() == twin.runner.seen.keys()
    for key, logits in twin.runner.seen.items():
        assert (ours.runner.seen[key] - logits).abs().max() < 1e-4


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_decode_step_waits_for_the_card_only_to_fetch_the_tokens(reference: Any) -> None:
    config = EngineConfig(model=str(reference.folder), device="cuda", max_slots=3)
    runner = ModelRunner(config)
    engine = Engine(config, runner=runner)
    for index in range(3):
        engine.add_request(str(index), [1 + index, 5, 6], SamplingParams(max_tokens=40))
    engine.step()
    run = runner.run

    def watched(plan: Any) -> torch.Tensor:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return run(plan)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    runner.run = watched  # type: ignore[method-assign]
    while engine.has_unfinished():
        engine.step()


@pytest.mark.weights
def test_bfloat16_runs_close_to_float32(run_requests: Callable[..., Any]) -> None:
    """bf16 rounds every product to 8 bits; what is asked here is that nothing is wrong."""
    first = {}
    for dtype in ("float32", "bfloat16"):
        run = run_requests(
            "smollm2-135m",
            prompts(5),
            SamplingParams(max_tokens=4, ignore_eos=True),
            device="cuda",
            dtype=dtype,
            max_slots=5,
            max_model_len=64,
        )
        assert [len(output.token_ids) for output in run.outputs.values()] == [4] * 5
        first[dtype] = [run.runner.seen[str(i), len(p)].float() for i, p in enumerate(prompts(5))]
    for exact, rounded in zip(first["float32"], first["bfloat16"], strict=True):
        assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.99


@pytest.fixture(autouse=True)
def memory_is_given_back() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()
