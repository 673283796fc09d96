"""The engine: schedule -> run -> sample -> update, over and over.

``Engine.step`` is the whole of continuous batching on one screen. Everything else here is the
door: requests come in by ``add_request``, and each of them leaves exactly once, as an output of
some step, however it ended.

A failed step did not happen: if the model raises, or is interrupted, the requests of that step end
in error with their holds closed at its start, the others stay, and the exception goes on to the
caller.

An engine is driven by one thread.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch

from nanoserve._checks import shown
from nanoserve._version import __version__
from nanoserve.admission import Limits, Prompt, admit
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.config import EngineConfig
from nanoserve.description import EngineDescription
from nanoserve.errors import RequestRefused
from nanoserve.model_runner import ModelRunner
from nanoserve.models.model_config import ModelConfig
from nanoserve.outputs import RequestOutput, StepOutput, TokenOutput
from nanoserve.request import FinishReason, Request, RequestStatus, RequestTimings
from nanoserve.sampler import sample
from nanoserve.sampling_params import SamplingParams
from nanoserve.scheduler import Scheduler, SchedulerOutput
from nanoserve.tokenizer import Tokenizer

_NOT_FINITE = "the model's logits are not finite numbers: its weights or dtype cannot be right"


class Runner(Protocol):
    """What the engine needs of a model runner."""

    model_config: ModelConfig
    max_model_len: int
    tokenizer: Tokenizer | None
    kernel_path: str
    attention_path: str
    weights_digest: str

    @property
    def num_blocks(self) -> int:
        """Blocks in the KV pool."""

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Logits of each row's next token."""

    def highest(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The greedy choice of each row, as ``sampler.highest`` makes it."""


class Engine:
    """Continuous batching over one model.

    Args:
        config: The settings.
        runner: What computes a step; built from the settings by default.
        clock: Monotonic time in nanoseconds.

    Raises:
        ConfigError: When a setting does not go with the model or the machine.
        ModelError: When the model cannot be loaded.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        runner: Runner | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self._runner = runner or ModelRunner(config)
        self._clock = clock
        self._allocator = BlockAllocator(self._runner.num_blocks, config.block_size)
        self._scheduler = Scheduler(
            self._allocator, max_slots=config.max_slots, max_batch_tokens=config.max_batch_tokens
        )
        self._limits = Limits(
            vocab_size=self._runner.model_config.vocab_size,
            max_model_len=self._runner.max_model_len,
            pool_tokens=self._runner.num_blocks * config.block_size,
        )
        self._live: dict[str, Request] = {}
        self._undelivered: list[RequestOutput] = []
        self._added = 0
        self._boundary_ns = 0  # the end of the last step

    # ---- the loop -------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Advance every running request by one token, admit and retire.

        Returns:
            The step's record, its tokens, and the requests that ended since the step before.
        """
        start_ns, plan = self._schedule()
        tokens = self._run(plan, start_ns)
        end_ns = self._clock() if plan.holders else start_ns
        self._update(plan, tokens, end_ns)
        outputs, self._undelivered = self._undelivered, []
        return StepOutput(
            start_ns=start_ns,
            end_ns=end_ns,
            prefill_rows=plan.prefill_rows,
            decode_rows=plan.decode_rows,
            holders=plan.holders,
            waiting=plan.waiting,
            tokens=tuple(
                TokenOutput(request_id=row.request.request_id, token_id=token)
                for row, token in zip(plan.rows, tokens, strict=True)
                if token is not None
            ),
            outputs=tuple(outputs),
        )

    def _schedule(self) -> tuple[int, SchedulerOutput]:
        """Fix the start of the step, and who runs in it.

        While slots are held, steps tile the time: this one starts where the last one ended. A
        request that arrived or was handed over after that cannot be admitted at a stamp before;
        if a slot is free for it, this step only closes the time up to now, and the next one
        admits.
        """
        now_ns = self._clock()
        start_ns = self._boundary_ns if self._scheduler.running else now_ns
        if self._scheduler.running and self._scheduler.newcomer_between(start_ns, now_ns):
            return start_ns, self._scheduler.boundary()
        return start_ns, self._scheduler.schedule(start_ns)

    def _run(self, plan: SchedulerOutput, start_ns: int) -> list[int | None]:
        """The next token of each row; None where the logits allow none."""
        if not plan.rows:
            return []
        requests = [row.request for row in plan.rows]
        try:
            return sample(self._runner.run(plan), requests, self._runner.highest)
        except BaseException as error:  # Ctrl-C as well: a slot without a step would stay held
            for request in requests:
                self._finish(request, FinishReason.ERROR, start_ns, f"the step failed: {error!r}")
            raise

    def _update(self, plan: SchedulerOutput, tokens: Sequence[int | None], end_ns: int) -> None:
        """Give every row its token, and retire what has ended."""
        self._boundary_ns = end_ns
        for row, token in zip(plan.rows, tokens, strict=True):
            request = row.request
            request.num_computed += row.length
            if token is None:
                self._finish(request, FinishReason.ERROR, end_ns, _NOT_FINITE)
                continue
            request.append(token, end_ns)
            if (reason := request.reason_to_stop()) is not None:
                self._finish(request, reason, end_ns)

    def _finish(
        self, request: Request, reason: FinishReason, now_ns: int, error: str | None = None
    ) -> None:
        self._scheduler.finish(request, reason, now_ns, error)
        del self._live[request.request_id]
        self._deliver(
            request.request_id,
            prompt=request.prompt_token_ids,
            tokens=request.output_token_ids,
            reason=reason,
            error=error,
            timings=request.timings(),
        )

    # ---- the door -------------------------------------------------------------------------

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        arrival_ns: int | None = None,
    ) -> None:
        """Hand over one request.

        A request that cannot be served is not raised: it ends in error, and the next step
        delivers that. So does one whose id is still in use; the first goes on.

        Args:
            request_id: The caller's name for it; free again once it has ended.
            prompt: Text, or token ids.
            params: How to decode; greedy with 16 tokens by default.
            arrival_ns: When it was due, on the engine's clock; now, by default.

        Raises:
            TypeError: When the id is no string or the arrival no integer.
        """
        now_ns = self._clock()
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a string, not {shown(request_id)}")
        if arrival_ns is not None and not isinstance(arrival_ns, int):
            raise TypeError(
                f"arrival_ns must be an integer of nanoseconds, not {shown(arrival_ns)}"
            )
        due_ns = now_ns if arrival_ns is None else arrival_ns
        params = SamplingParams() if params is None else params
        if request_id in self._live:
            fault = f"request id {request_id!r} is already in use"
            self._refuse(request_id, fault, due_ns=due_ns, now_ns=now_ns)
            return
        try:
            admitted = admit(prompt, params, limits=self._limits, tokenizer=self._runner.tokenizer)
        except RequestRefused as refusal:
            self._refuse(request_id, str(refusal), due_ns=due_ns, now_ns=now_ns)
            return
        eos = frozenset() if params.ignore_eos else self._runner.model_config.eos_token_ids
        request = Request(
            request_id=request_id,
            prompt=admitted.prompt,
            params=params,
            table=BlockTable(self._allocator),
            order=(due_ns, self._added),
            submitted_ns=now_ns,
            max_length=admitted.max_length,
            stop_ids=eos.union(params.stop_token_ids),
            seed=secrets.randbits(64) if params.seed is None else params.seed,
        )
        self._added += 1
        self._live[request_id] = request
        self._scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """End a request, whatever it is doing; the next step delivers its output.

        A running request's hold ends with the last step. Nothing happens if it has ended already.
        """
        request = self._live.get(request_id)
        if request is None:
            return
        if request.status is RequestStatus.RUNNING:
            ended_ns = self._boundary_ns
        else:
            ended_ns = max(self._clock(), request.arrival_ns)
        self._finish(request, FinishReason.ABORT, ended_ns)

    def has_unfinished(self) -> bool:
        """Whether a step has anything left to do or to deliver."""
        return bool(self._live or self._undelivered)

    def hand_back(self, outputs: Iterable[RequestOutput]) -> None:
        """Return outputs that a step delivered to the wrong caller; the next one delivers them."""
        self._undelivered[:0] = outputs

    def _refuse(self, request_id: str, error: str, *, due_ns: int, now_ns: int) -> None:
        timings = RequestTimings(
            arrival_ns=due_ns,
            submitted_ns=now_ns,
            holds=(),
            first_token_ns=None,
            token_ns=(),
            finished_ns=max(now_ns, due_ns),
        )
        self._deliver(
            request_id,
            prompt=[],
            tokens=[],
            reason=FinishReason.ERROR,
            error=error,
            timings=timings,
        )

    def _deliver(
        self,
        request_id: str,
        *,
        prompt: list[int],
        tokens: list[int],
        reason: FinishReason,
        error: str | None,
        timings: RequestTimings,
    ) -> None:
        tokenizer = self._runner.tokenizer
        self._undelivered.append(
            RequestOutput(
                request_id=request_id,
                prompt_token_ids=prompt,
                token_ids=tokens,
                finish_reason=reason,
                error=error,
                timings=timings,
                decode=tokenizer.decode if tokenizer else None,
            )
        )

    # ---- what it is -----------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None if it has none."""
        return self._runner.tokenizer

    @property
    def kernel_path(self) -> str:
        """Which kernel multiplies by weights."""
        return self._runner.kernel_path

    @property
    def weights_digest(self) -> str:
        """``sha256:...`` of the canonical tensors as loaded."""
        return self._runner.weights_digest

    def describe(self) -> EngineDescription:
        """What decides this engine's numbers, for the record of a measurement."""
        return EngineDescription(
            version=__version__,
            torch_version=torch.__version__,
            model=self.config.model,
            weights_digest=self.weights_digest,
            device=self.config.device,
            dtype=self.config.dtype,
            matmul_precision=torch.get_float32_matmul_precision(),
            threads=torch.get_num_threads(),
            kernel_path=self.kernel_path,
            attention_path=self._runner.attention_path,
            prefix_cache="off",
            max_slots=self.config.max_slots,
            max_model_len=self._runner.max_model_len,
            block_size=self.config.block_size,
            num_blocks=self._runner.num_blocks,
        )

    def check_integrity(self) -> None:
        """Check that no block and no request is lost.

        Raises:
            IntegrityError: Naming what is.
        """
        self._scheduler.check_integrity(self._live.values())
