"""Run as a process of its own by `soak.session`: requests through the engine, set up as told.

The engine's books are checked on the way, because a lost block shows in tokens only much later.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from nanoserve import Engine, EngineConfig, SamplingParams
from nanoserve.outputs import RequestOutput
from nanoserve_bench.probes import ServeAnswer, ServeOrder, carry_out
from nanoserve_bench.systems.soak_pool import Policy, tight_pool

_CHECK_EVERY = 50
"""Steps between two looks at the books."""


def serve(order: ServeOrder) -> ServeAnswer:
    """All requests at once, to their end."""
    config = _config(order)
    engine = Engine(config)
    for index, (prompt, max_tokens) in enumerate(_requests(order)):
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        engine.add_request(str(index), prompt, params)
    outputs: dict[int, RequestOutput] = {}
    prefill_rows = most_rows = steps = 0
    while engine.has_unfinished():
        step = engine.step()
        steps += 1
        prefill_rows += step.prefill_rows
        most_rows = max(most_rows, step.decode_rows)
        outputs |= {int(output.request_id): output for output in step.outputs}
        if steps % _CHECK_EVERY == 0:
            engine.check_integrity()
    engine.check_integrity()
    holds = sum(len(output.timings.holds) for output in outputs.values())
    ordered = [outputs[index] for index in range(len(outputs))]
    return ServeAnswer(
        kernel_path=engine.kernel_path,
        kv_pool_tokens=config.kv_pool_tokens,
        outputs=tuple(tuple(output.token_ids) for output in ordered),
        errors=tuple(output.error for output in ordered),
        preemptions=holds - len(outputs),
        # Every hold computes its prompt once, in one piece or in several.
        chunks=prefill_rows - holds,
        cached_tokens=sum(output.cached_tokens or 0 for output in ordered),
        most_rows=most_rows,
    )


def _requests(order: ServeOrder) -> list[tuple[tuple[int, ...], int]]:
    return list(zip(order.prompts, order.max_tokens, strict=True))


def _config(order: ServeOrder) -> EngineConfig:
    config = EngineConfig(model=order.model_path, **asdict(order.settings))
    if config.kv_pool_tokens is not None:
        return config
    policy = Policy(
        max_slots=config.max_slots,
        max_batch_tokens=config.step_tokens,
        block_size=config.block_size,
        prefix_cache=config.prefix_cache,
    )
    return replace(config, kv_pool_tokens=tight_pool(_requests(order), policy))


if __name__ == "__main__":
    carry_out(ServeOrder, serve)
