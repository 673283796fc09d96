"""Run as a process of its own by `soak.session`: requests through the engine, set up as told.

Standard input is one JSON object, the last line of standard output is another. The engine's books
are checked on the way, because a lost block shows in tokens only much later. Without
`kv_pool_tokens` among the settings, the KV pool is the one in which most requests are preempted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from nanoserve import Engine, EngineConfig, SamplingParams
from nanoserve.outputs import RequestOutput
from nanoserve_bench.systems.soak_pool import Policy, tight_pool

_CHECK_EVERY = 50


def serve(asked: dict[str, Any]) -> dict[str, Any]:
    """All requests at once, to their end."""
    config = _config(asked)
    engine = Engine(config)
    for index, (prompt, max_tokens) in enumerate(asked["requests"]):
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
    return {
        "kernel_path": engine.kernel_path,
        "kv_pool_tokens": config.kv_pool_tokens,
        "outputs": [outputs[index].token_ids for index in range(len(outputs))],
        "errors": [outputs[index].error for index in range(len(outputs))],
        "preemptions": holds - len(outputs),
        # Every hold computes its prompt once, in one piece or in several.
        "chunks": prefill_rows - holds,
        "cached_tokens": sum(output.cached_tokens or 0 for output in outputs.values()),
        "most_rows": most_rows,
    }


def _config(asked: dict[str, Any]) -> EngineConfig:
    config = EngineConfig(model=asked["model_path"], **asked["settings"])
    if config.kv_pool_tokens is not None:
        return config
    policy = Policy(
        max_slots=config.max_slots,
        max_batch_tokens=config.step_tokens,
        block_size=config.block_size,
        prefix_cache=config.prefix_cache,
    )
    return replace(config, kv_pool_tokens=tight_pool(asked["requests"], policy))


if __name__ == "__main__":
    print(json.dumps(serve(json.loads(sys.stdin.read()))))  # noqa: T201
