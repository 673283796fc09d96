"""Timing `generate` from inside: one call, the tokens it would have given anyway, EOS or not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from nanoserve_bench import check_serial, hf_generate_one, run_serial
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.records import Settings
from nanoserve_bench.systems import hf_model
from nanoserve_bench.systems.hf_model import load_model, weight_bytes_per_step

PROMPT = [5, 6, 7, 8]
SETTINGS = Settings(
    machine="m",
    device="cpu",
    dtype="float32",
    matmul_precision="ieee",
    threads=1,
    weights="w",
    tokenizer="none",
    decoding="greedy;ignore_eos",
    cache="off",
)


@pytest.fixture(scope="module")
def model(tiny: ModelFolder) -> Any:
    torch.set_num_threads(1)
    return load_model(str(tiny.path), device="cpu", dtype="float32")


def by_hand(model: Any, prompt: Sequence[int], tokens: int) -> list[int]:
    """Greedy decoding without `generate`: the whole sequence through the model for every token."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def test_it_gives_the_greedy_tokens(model: Any) -> None:
    generated = hf_generate_one(model)(PROMPT, 6)
    assert list(generated.token_ids) == by_hand(model, PROMPT, 6)


def test_each_token_is_stamped_inside_of_one_call(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    generate = model.generate
    monkeypatch.setattr(model, "generate", lambda **k: calls.append(k) or generate(**k))
    ticks = itertools.count(100)
    generated = hf_generate_one(model, clock=lambda: next(ticks))(PROMPT, 6)
    assert len(calls) == 1
    assert calls[0]["max_new_tokens"] == 6
    assert generated.token_ns == tuple(range(100, 106))


def test_the_first_stamp_comes_right_after_the_prompts_forward_pass(model: Any) -> None:
    events: list[str] = []
    handle = model.register_forward_hook(lambda *_: events.append("forward"))
    try:
        hf_generate_one(model, clock=lambda: len(events) or events.append("early"))(PROMPT, 3)
        generated = hf_generate_one(model, clock=lambda: len(events))(PROMPT, 3)
    finally:
        handle.remove()
    assert "early" not in events
    # The clock reads the number of forward passes: one more at each stamp.
    assert generated.token_ns is not None
    assert [later - generated.token_ns[0] for later in generated.token_ns] == [0, 1, 2]


def test_without_the_processor_the_tokens_are_the_same_and_there_is_no_stamp(model: Any) -> None:
    timed, untimed = (
        hf_generate_one(model)(PROMPT, 6),
        hf_generate_one(model, timed=False)(PROMPT, 6),
    )
    assert timed.token_ids == untimed.token_ids
    assert untimed.token_ns is None


def test_an_end_of_sequence_token_does_not_end_the_output(model: Any) -> None:
    expected = by_hand(model, PROMPT, 6)
    kept = model.generation_config
    model.generation_config = GenerationConfig(
        eos_token_id=expected[1], pad_token_id=0, do_sample=True
    )
    try:
        assert len(
            model.generate(torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False)[0]
        ) == (len(PROMPT) + 2)
        assert list(hf_generate_one(model)(PROMPT, 6).token_ids) == expected
    finally:
        model.generation_config = kept


def test_a_models_own_generation_config_is_put_away(tiny: ModelFolder) -> None:
    config = load_model(str(tiny.path), device="cpu", dtype="float32").generation_config
    assert config.eos_token_id is None
    assert not config.do_sample


def test_on_a_device_that_runs_ahead_a_stamp_waits(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(hf_model, "synchronise", lambda device: order.append(f"wait {device}"))
    hf_generate_one(model, clock=lambda: order.append("stamp") or 0)(PROMPT, 2)
    assert order == ["wait cpu", "stamp"] * 2


def test_a_serial_run_over_it_is_serial(model: Any) -> None:
    run = run_serial(
        [PROMPT, [9, 10, 11]], hf_generate_one(model), max_tokens=5, system="s", settings=SETTINGS
    )
    check_serial(run)
    for record in run.records:
        assert record.prefill_ns == record.ttft_ns
        assert record.token_ns is not None
        assert record.finished_ns is not None
        assert record.arrival_ns < record.token_ns[0] < record.token_ns[-1] <= record.finished_ns


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_reads_a_tied_table_once_and_an_untied_one_not_at_all(tied: bool) -> None:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    layer = 16 * 16 * 2 + 16 * 8 * 2 + 3 * 16 * 32 + 2 * 16
    expected = 4 * (layer + 16 + 64 * 16)
    assert weight_bytes_per_step(LlamaForCausalLM(config)) == expected
