"""`hf-continuous`: transformers' own continuous batching, with its own stamps.

The library generates in a thread of its own. Once another thread that lives on has run a parallel
region of OpenMP, the small products of that thread run on one core: the model is therefore loaded
in a thread that ends, and the main thread of this worker never computes.

It stamps when a request leaves its queue, each token, and when it is done, all with
`time.perf_counter`. It admits no more than `max_requests_per_batch` requests at a time as long as
its cache never runs full, so the time from leaving the queue to being done is the request's hold;
the cache is made large enough for every slot, and a request that was put back to recompute would
come without the stamps of its first tokens, which is an error here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, ClassVar

from nanoserve_bench.feeding import Submitted, send_when_due
from nanoserve_bench.protocol import Description, Launch, Trial
from nanoserve_bench.records import Hold, RunRecord, Shape, SystemRun
from nanoserve_bench.systems import System
from nanoserve_bench.systems.hf_generate import describe

PAGE_TOKENS = 32
BATCH_TOKENS = 512
_POLL_S = 1.0
_START_TIMEOUT_S = 120.0


class HfContinuous(System):
    """The manager of `init_continuous_batching`, started once per launch."""

    summary = "transformers' continuous batching"
    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens")
    requires = ("torch", "transformers", "nanoserve")
    distribution = "transformers"
    open_loop = True
    measures_ceilings = False  # in the main thread, which must not compute

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        with ThreadPoolExecutor(max_workers=1) as thread:
            self._manager, self._description = thread.submit(self._load).result()
        self._manager.start()
        self._trials = 0
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._manager.batch_processor is None:
            self._refuse_dead_thread()
            if time.monotonic() > deadline:
                raise RuntimeError(f"continuous batching did not start in {_START_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def _load(self) -> tuple[Any, Description]:
        # torch and transformers, which the sweep does not import to plan.
        from transformers import ContinuousBatchingConfig, GenerationConfig  # noqa: PLC0415

        from nanoserve_bench.systems import hf_model  # noqa: PLC0415

        launch = self._launch
        model = hf_model.load_model(launch.model_path, device=launch.device, dtype=launch.dtype)
        pages = -(-launch.longest // PAGE_TOKENS) + 1
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
                do_sample=False,
                eos_token_id=-1,  # no token ends a request
                pad_token_id=0,
                max_new_tokens=launch.longest,
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                **named({field.name for field in fields(ContinuousBatchingConfig)}),
                num_blocks=pages * launch.most_slots + 4,
                max_batch_tokens=max(BATCH_TOKENS, launch.most_slots),
                max_requests_per_batch=launch.most_slots,
                allow_block_sharing=False,  # the prefix cache
                safety_margin=0.0,  # there is a page for everything: admit up to the slots
            ),
        )
        return manager, describe(self, launch, model)

    def describe(self) -> Description:
        """What was loaded."""
        return self._description

    def run(self, trial: Trial) -> SystemRun:
        """Each prompt when it is due; the library's scheduler fills `trial.slots` slots."""
        self._manager.batch_processor.scheduler.max_requests_per_batch = trial.slots
        self._trials += 1
        names = [f"{self._trials}/{index}" for index in range(len(trial.prompts))]
        come: list[Submitted] = []

        def send(request: int, arrival_ns: int) -> None:
            come.append(Submitted(request, arrival_ns, time.perf_counter_ns()))
            self._manager.add_request(
                list(trial.prompts[request]),
                request_id=names[request],
                max_new_tokens=trial.max_tokens[request],
                record_timestamps=True,
            )

        # By the clock of the library's own stamps.
        at_once = (0,) * len(names)
        send_when_due(trial.due_ns or at_once, send, clock=time.perf_counter_ns)
        results: dict[str, Any] = {}
        while len(results) < len(names):
            result = self._manager.get_result(timeout=_POLL_S)
            if result is None:
                self._refuse_dead_thread()
            elif result.is_finished():
                results[result.request_id] = result
        return SystemRun(
            system=self._launch.system,
            shape=self.shape,
            slots=trial.slots,
            records=tuple(
                _record(each, prompt, tokens, results[name])
                for each, name, prompt, tokens in zip(
                    come, names, trial.prompts, trial.max_tokens, strict=True
                )
            ),
            settings=self._description.settings(self._launch),
        )

    def _refuse_dead_thread(self) -> None:
        """The library logs the errors of its thread; here they are raised."""
        error = self._manager.background_thread_status.fatal_error
        if error is not None:
            raise RuntimeError(f"continuous batching failed: {error!r}") from error
        if not self._manager.is_running():
            raise RuntimeError("the thread of continuous batching ended by itself")


def named(known: AbstractSet[str]) -> dict[str, Any]:
    """The settings whose names depend on transformers' version, out of those that it knows.

    In 5.17, the oldest one that is supported, a page was a block, and a library for flash attention
    was used wherever there was one; the description says what came of that.
    """
    page = "page_size" if "page_size" in known else "block_size"
    attention = {"auto_switch_to_flash": False} if "auto_switch_to_flash" in known else {}
    return {page: PAGE_TOKENS, **attention}


def _record(come: Submitted, prompt: Sequence[int], max_tokens: int, result: Any) -> RunRecord:
    request = str(come.request)
    if result.error is not None:
        raise RuntimeError(f"request {request} failed: {result.error}")
    token_ids, stamps = tuple(result.generated_tokens), tuple(map(_ns, result.timestamps))
    if len(stamps) != len(token_ids):
        raise RuntimeError(
            f"request {request} has {len(stamps)} stamps for {len(token_ids)} tokens: it was put "
            "back to recompute, and its first stamps are lost"
        )
    acquired_ns, finished_ns = map(_ns, result.lifespan)
    return RunRecord(
        request=request,
        prompt_ids=tuple(prompt),
        output_ids=token_ids,
        max_tokens=max_tokens,
        arrival_ns=come.arrival_ns,
        submitted_ns=come.submitted_ns,
        holds=(Hold(acquired_ns, finished_ns),),
        first_token_ns=stamps[0],
        finished_ns=finished_ns,
        token_ns=stamps,
        cached_tokens=0,
        finish_reason="length" if len(token_ids) == max_tokens else "stop",
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
