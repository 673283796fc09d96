"""The compiled kernels: against torch at every shape, and to the bit against themselves.

That whole models agree with transformers on every path is in ``test_llama`` and ``test_smollm2``.
"""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import linear, silu

from nanoserve import Engine, EngineConfig, SamplingParams
from nanoserve.errors import IntegrityError
from nanoserve.kernels import panels
from nanoserve.kernels.backend import CompiledBackend
from nanoserve.kernels.library import KernelLibrary
from nanoserve.kernels.panels import PackedMatrix, WeightMemory
from nanoserve.model_runner import ModelRunner
from nanoserve.sampler import highest
from nanoserve.scheduler import ScheduledRow, SchedulerOutput

STORE, ADD, SILU_TIMES = range(3)
SHAPES = [(1, 1), (5, 47), (7, 24), (8, 48), (33, 49), (64, 96), (77, 97), (200, 145), (3, 300)]
GUARD = 12345.0


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def multiply(
    kernels: KernelLibrary,
    weight: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor | None = None,
    epilogue: int = STORE,
) -> torch.Tensor:
    """A linear through the kernels, whose result must stay inside its rows."""
    packed = PackedMatrix(weight, width=kernels.panel_width, memory=WeightMemory())
    outputs, padded = len(weight), kernels.padded(len(weight))
    spread = torch.full((len(x) + 1, padded + 5), GUARD)
    if y is not None:
        spread[: len(x), :padded] = 0
        spread[: len(x), :outputs] = y
    kernels.linear(packed.matrix, x, spread, epilogue=epilogue)
    assert (spread[:, padded:] == GUARD).all()
    assert (spread[-1] == GUARD).all()
    return spread[: len(x), :outputs]


# ---- linears ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_linear_is_torchs_at_every_number_of_rows(
    kernels: KernelLibrary, inputs: int, outputs: int
):
    weight = drawn(outputs, inputs)
    for rows in range(1, 34):
        x = drawn(rows, inputs, seed=rows)
        torch.testing.assert_close(
            multiply(kernels, weight, x), linear(x, weight), rtol=1e-5, atol=2e-5
        )


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_row_has_the_same_bits_whatever_its_company(
    kernels: KernelLibrary, inputs: int, outputs: int
):
    weight, x = drawn(outputs, inputs), drawn(33, inputs, seed=1)
    alone = torch.cat([multiply(kernels, weight, row[None]) for row in x])
    for rows in range(1, 34):
        assert torch.equal(multiply(kernels, weight, x[:rows]), alone[:rows])
        assert torch.equal(multiply(kernels, weight, x[-rows:]), alone[-rows:])


def test_rows_may_be_any_distance_apart(kernels: KernelLibrary):
    weight, x = drawn(50, 20), drawn(7, 31)
    wanted = multiply(kernels, weight, x[:, :20].contiguous())
    assert torch.equal(multiply(kernels, weight, x[:, :20]), wanted)


def test_what_is_done_with_a_product(kernels: KernelLibrary):
    weight, x, y = drawn(97, 30), drawn(11, 30, seed=1), 3 * drawn(11, 97, seed=2)
    product = linear(x, weight)
    added = multiply(kernels, weight, x, y, ADD)
    torch.testing.assert_close(added, y + product, rtol=1e-5, atol=2e-5)
    gated = multiply(kernels, weight, x, y, SILU_TIMES)
    torch.testing.assert_close(gated, silu(y) * product, rtol=1e-5, atol=2e-5)


def test_silu_is_exact_to_rounding_from_end_to_end(kernels: KernelLibrary):
    edges = torch.tensor([0.0, -0.0, 1e-30, 3e38, -3e38, float("inf")])
    gates = torch.cat([torch.linspace(-110, 110, 20_001), edges])[:, None]
    got = multiply(kernels, torch.ones(1, 1), torch.ones_like(gates), gates, SILU_TIMES)
    torch.testing.assert_close(got, silu(gates.double()).float(), rtol=4e-7, atol=5e-37)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_stays_in_its_row(kernels: KernelLibrary, value: float):
    weight, x = drawn(60, 10), drawn(9, 10, seed=1)
    x[4, 3] = value
    got = multiply(kernels, weight, x)
    assert not got[4].isfinite().any()
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    assert torch.equal(got[others], multiply(kernels, weight, x[others]))
    got = multiply(kernels, weight, x, torch.full((9, 60), float("nan")), SILU_TIMES)
    assert got.isnan().all()


def test_panels_hold_the_weight_and_nothing_else():
    weight = drawn(50, 7)
    packed = PackedMatrix(weight, width=24, memory=WeightMemory())
    unpacked = packed.panels.transpose(1, 2).reshape(-1, 7)
    assert torch.equal(unpacked[:50], weight)
    assert not unpacked[50:].any()


def test_weight_memory_hands_out_every_float_once():
    memory = WeightMemory()
    pieces = [memory.take(size) for size in (1, 5_000_000, 17, 40_000_000, 3, 16)]
    for number, piece in enumerate(pieces, 1):
        assert not piece.any()
        piece.fill_(number)
        assert piece.data_ptr() % 64 == 0
    assert all((piece == number).all() for number, piece in enumerate(pieces, 1))


@pytest.mark.parametrize("width", [1, 7, 8, 16, 17, 31, 48, 97, 1000])
def test_the_greedy_choice_is_torchs(kernels: KernelLibrary, width: int):
    logits = drawn(70, width + 3)[:, :width].round(decimals=1)  # full of ties
    logits[1] = 0.0
    logits[2] = -0.0
    logits[3, ::2] = float("inf")
    logits[4] = float("-inf")
    for row in range(5, 40):
        logits[row, row * 31 % width] = 9.0
        logits[row, row * 17 % width] = 9.0
    for row in range(40, 60):
        logits[row, row * 31 % width] = float("nan")
    ids = kernels.argmax(logits)
    assert ids == highest(logits)
    assert ids[3:5] == [None, None]
    assert ids[40:60] == [None] * 20
    assert None not in ids[5:40]


# ---- steps ------------------------------------------------------------------------------------


def prompts_of(lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(97) for _ in range(length)] for length in lengths]


def pool_of(runner: ModelRunner) -> tuple[torch.Tensor, torch.Tensor]:
    compiled = runner._backend
    assert isinstance(compiled, CompiledBackend)
    return compiled._pool


@pytest.mark.parametrize("block_size", [1, 3, 16, 40, 300])
@pytest.mark.usefixtures("on_kernels")
def test_logits_agree_around_the_borders_of_blocks_chunks_and_calls(
    block_size: int, make_reference: Any, run_requests: Any
):
    """Attention goes on after 256 tokens, a call ends after 512, and blocks end where they do."""
    reference = make_reference(max_position_embeddings=1024)
    lengths = [1, 15, 16, 17, 254, 257, 511, 513, 700]
    run = run_requests(
        reference.folder,
        prompts_of(lengths),
        SamplingParams(max_tokens=5),
        max_slots=len(lengths),
        block_size=block_size,
        max_batch_tokens=10_000,
    )
    assert len({len(row) for row in run.runner.passes}) == 1, "all rows in every step"
    assert run.worst_logit(reference) < 1e-4


@pytest.mark.usefixtures("on_kernels")
def test_the_last_position_of_a_long_model(make_reference: Any, run_requests: Any):
    reference = make_reference(max_position_embeddings=2048, num_hidden_layers=2)
    run = run_requests(
        reference.folder, prompts_of([2045]), SamplingParams(max_tokens=16), max_slots=1
    )
    assert len(run.outputs["0"].token_ids) == 3
    assert run.worst_logit(reference) < 1e-4


@pytest.mark.parametrize("heads", [(6, 6), (6, 1), (10, 1), (12, 4), (18, 2)], ids=str)
@pytest.mark.usefixtures("on_kernels")
def test_query_heads_share_kv_heads_in_groups_of_any_size(
    heads: tuple[int, int], make_reference: Any, run_requests: Any
):
    reference = make_reference(
        hidden_size=4 * heads[0], num_attention_heads=heads[0], num_key_value_heads=heads[1]
    )
    run = run_requests(reference.folder, prompts_of([5, 20]), SamplingParams(max_tokens=6))
    assert run.worst_logit(reference) < 1e-4


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.usefixtures("on_kernels")
def test_a_request_has_the_same_bits_alone_in_company_and_on_any_number_of_threads(
    threads: int, reference: Any, run_requests: Any
):
    prompt = prompts_of([37], seed=1)[0]
    alone = run_requests(reference.folder, [prompt], SamplingParams(max_tokens=20))
    torch.set_num_threads(threads)
    try:
        company = run_requests(
            reference.folder,
            [prompt, *prompts_of([70, 2, 31, 37, 13], seed=2)],
            [SamplingParams(max_tokens=n) for n in (20, 2, 30, 5, 1, 12)],
            max_slots=4,
        )
    finally:
        torch.set_num_threads(1)
    for position in range(37, 57):
        assert torch.equal(company.runner.seen["0", position], alone.runner.seen["0", position])


@pytest.mark.usefixtures("on_kernels")
def test_the_number_of_threads_may_change_from_step_to_step(
    make_reference: Any, run_requests: Any, monkeypatch: pytest.MonkeyPatch
):
    """The workspace is made for a number of threads; a long prompt comes in the middle."""
    folder = make_reference(max_position_embeddings=1024).folder
    prompts = prompts_of([37, 5, 600], seed=3)
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (16, 2, 9)]
    settings = {"max_slots": 2, "max_batch_tokens": 1000}
    wanted = run_requests(folder, prompts, params, **settings).runner

    run, threads = CompiledBackend.run, itertools.cycle((1, 5, 2, 1))

    def on_another_number(self: CompiledBackend, plan: SchedulerOutput) -> torch.Tensor:
        torch.set_num_threads(next(threads))
        return run(self, plan)

    monkeypatch.setattr(CompiledBackend, "run", on_another_number)
    try:
        got = run_requests(folder, prompts, params, **settings).runner
    finally:
        torch.set_num_threads(1)
    assert [len(step) for step in got.passes] == [2] * 11 + [1] * 5
    assert got.seen.keys() == wanted.seen.keys()
    assert all(torch.equal(got.seen[key], logits) for key, logits in wanted.seen.items())


@pytest.mark.usefixtures("on_kernels")
def test_what_is_computed_again_after_preemption_has_the_same_bits(
    reference: Any, run_requests: Any
):
    prompts = prompts_of([8, 9, 10, 7, 8])
    settings = {"max_slots": 5, "block_size": 4}
    params = SamplingParams(max_tokens=20)
    tight = run_requests(reference.folder, prompts, params, kv_pool_tokens=48, **settings)
    roomy = run_requests(reference.folder, prompts, params, **settings)
    assert any(len(output.timings.holds) > 1 for output in tight.outputs.values())
    assert tight.runner.seen.keys() == roomy.runner.seen.keys()
    for key, logits in tight.runner.seen.items():
        assert torch.equal(logits, roomy.runner.seen[key])


@pytest.mark.usefixtures("on_kernels")
def test_nothing_is_read_that_was_not_written(reference: Any):
    """A pool full of NaN: one that came through would make the whole row one."""
    config = EngineConfig(model=str(reference.folder), max_slots=3, block_size=5)
    runner = ModelRunner(config)
    with torch.inference_mode():
        for tensor in pool_of(runner):
            tensor.fill_(float("nan"))
    engine = Engine(config, runner=runner)
    prompts = prompts_of([3, 20, 41, 7])
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=8))
    outputs = {}
    while engine.has_unfinished():
        outputs |= {output.request_id: output.token_ids for output in engine.step().outputs}
    assert outputs == {str(i): reference.greedy(prompt, 8) for i, prompt in enumerate(prompts)}


@pytest.mark.usefixtures("on_kernels")
def test_a_score_that_is_no_number_is_not_taken_for_nothing_seen(make_reference: Any):
    """Where a chunk begins with it, and a later chunk has scores that are numbers."""
    folder = make_reference(max_position_embeddings=1024).folder
    config = EngineConfig(model=str(folder))
    runner = ModelRunner(config)
    engine = Engine(config, runner=runner)
    engine.add_request("0", prompts_of([300])[0], SamplingParams(max_tokens=2))
    engine.step()
    with torch.inference_mode():
        pool_of(runner)[0][:, engine._live["0"].table.blocks[0], :, :, 0] = float("nan")
    assert [output.finish_reason for output in engine.step().outputs] == ["error"]


def plan_of(token_ids: list[int], blocks: list[int]) -> SchedulerOutput:
    request: Any = SimpleNamespace(token_ids=token_ids, table=SimpleNamespace(blocks=blocks))
    row = ScheduledRow(
        request=request, start=0, length=len(token_ids), is_prefill=True, samples=True
    )
    return SchedulerOutput(rows=(row,), new_blocks=(), holders=1, waiting=0)


@pytest.mark.parametrize(
    ("token_ids", "blocks", "fault"),
    [
        ([1, 256], [0], "token id"),
        ([-1], [0], "token id"),
        ([1], [4], "block"),
        ([1], [-1], "block"),
        ([1] * 9, [0, -7], "block"),
        ([1] * 9, [0], "position"),
        ([1] * 33, [0, 1, 2, 3, 0], "position"),
    ],
)
@pytest.mark.usefixtures("on_kernels")
def test_a_plan_that_points_outside_is_refused(token_ids: list[int], blocks: list[int], fault: str):
    runner = ModelRunner(
        EngineConfig(
            model="synthetic:tiny-llama", max_model_len=32, block_size=8, kv_pool_tokens=32
        )
    )
    assert runner.run(plan_of([1] * 9, [2, 3])).isfinite().all()
    with pytest.raises(IntegrityError, match=f"a {fault} of the step lies outside the model"):
        runner.run(plan_of(token_ids, blocks))


@pytest.mark.usefixtures("on_kernels")
def test_a_step_without_rows_does_nothing():
    runner = ModelRunner(EngineConfig(model="synthetic:tiny-llama"))
    empty = SchedulerOutput(rows=(), new_blocks=(), holders=0, waiting=0)
    assert runner.run(empty).shape == (0, 256)


@pytest.mark.usefixtures("on_kernels")
def test_tied_weights_are_in_memory_once(make_reference: Any):
    def matrices(*, tied: bool) -> int:
        folder = make_reference(tie_word_embeddings=tied).folder
        compiled = ModelRunner(EngineConfig(model=str(folder)))._backend
        assert isinstance(compiled, CompiledBackend)
        return len(compiled._packed)

    assert matrices(tied=True) == 3 * 5 + 1
    assert matrices(tied=False) == 3 * 5 + 2


@pytest.mark.usefixtures("on_kernels")
def test_weights_stay_where_they_are_in_however_many_chunks(
    run_requests: Any, monkeypatch: pytest.MonkeyPatch
):
    """A norm that is alone in its chunk is known to the kernels by its address alone."""
    monkeypatch.setattr(panels, "_CHUNK_BYTES", 4096)
    args = ("synthetic:tiny-llama", prompts_of([9, 30]), SamplingParams(max_tokens=8))
    got, wanted = run_requests(*args), run_requests(*args, kernel="torch")
    assert got.runner.kernel_path.startswith("cpp:")
    assert got.runner.seen.keys() == wanted.runner.seen.keys()
    for key, logits in wanted.runner.seen.items():
        torch.testing.assert_close(got.runner.seen[key], logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("block_size", [1, 3, 16, 17])
@pytest.mark.usefixtures("on_kernels")
def test_the_pool_keeps_within_the_memory_at_hand(block_size: int, monkeypatch: pytest.MonkeyPatch):
    """Keys lie in whole registers, so that a block may take more than its tokens."""
    monkeypatch.setattr("nanoserve.kv_cache.available_bytes", lambda device: 2 * 2**20)
    runner = ModelRunner(
        EngineConfig(model="synthetic:tiny-llama", block_size=block_size, max_slots=64)
    )
    block = runner._backend.block_bytes(block_size)
    keys, values = pool_of(runner)
    assert keys.nbytes + values.nbytes == runner.num_blocks * block
    assert 2**20 - block < keys.nbytes + values.nbytes <= 2**20
