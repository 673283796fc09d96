"""The engine: schedule -> run -> sample -> update, over and over.

``Engine.step`` is the whole of continuous batching on one screen. Everything else here is the
door: requests come in by ``add_request``, and each of them leaves exactly once, as an output of
some step, however it ended.

A failed step did not happen: if anything in it raises, the requests that held a slot end in error
with their holds closed at its start, those in the queue stay, nothing of the cache is trusted any
more, and the exception goes on to the caller. Ctrl-C fails no step: it waits for the end of it, and
what the step gave is returned by the next call. Pressed twice, it breaks the step off.

An engine is driven by one thread.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import torch

from nanoserve._checks import shown
from nanoserve._version import __version__
from nanoserve.admission import Limits, Prompt, admit
from nanoserve.block_allocator import BlockAllocator, BlockTable
from nanoserve.config import EngineConfig
from nanoserve.description import EngineDescription
from nanoserve.errors import RequestRefused
from nanoserve.interrupts import interrupts_wait
from nanoserve.logprobs import logprobs
from nanoserve.model_runner import ModelRunner
from nanoserve.models.model_config import ModelConfig
from nanoserve.output_text import OutputText
from nanoserve.outputs import RequestOutput, StepOutput, TokenOutput
from nanoserve.request import FinishReason, Request, RequestStatus, RequestTimings
from nanoserve.sampler import sample
from nanoserve.sampling_params import SamplingParams
from nanoserve.scheduler import Scheduler, SchedulerOutput
from nanoserve.token_logprobs import TokenLogprobs
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
    kv_pool: str

    @property
    def num_blocks(self) -> int:
        """Blocks in the KV pool."""

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Logits of the next token of each row that samples."""

    def highest(self, logits: torch.Tensor) -> list[int | None]:
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
            self._allocator,
            max_slots=config.max_slots,
            max_batch_tokens=config.step_tokens,
            prefix_cache=config.prefix_cache,
        )
        self._limits = Limits(
            vocab_size=self._runner.model_config.vocab_size,
            max_model_len=self._runner.max_model_len,
            pool_tokens=self._runner.num_blocks * config.block_size,
        )
        self._live: dict[str, Request] = {}
        self._undelivered: list[RequestOutput] = []
        self._unread: StepOutput | None = None  # of a step whose caller was interrupted
        self._added = 0
        self._boundary_ns = 0  # the end of the last step, or the start of this one

    # ---- the loop -------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Advance every running request by one token, admit and retire.

        Returns:
            The step's record, its tokens, and the requests that ended since the step before.
        """
        with interrupts_wait():
            step = self._unread or self._advance()
        # Python heeds signals at calls and at jumps back: from here to the caller there is none.
        self._unread = None
        return step

    def _advance(self) -> StepOutput:
        try:
            start_ns, plan = self._schedule()
            tokens, told = self._run(plan)
            end_ns = self._clock() if plan.holders else start_ns
            produced = self._update(plan, tokens, told, end_ns)
        except BaseException as error:
            self._abandon(f"the step failed: {error!r}")
            raise
        step = StepOutput(
            start_ns=start_ns,
            end_ns=end_ns,
            prefill_rows=plan.prefill_rows,
            decode_rows=plan.decode_rows,
            holders=plan.holders,
            waiting=plan.waiting,
            tokens=tuple(produced),
            outputs=tuple(self._undelivered),
        )
        self._unread, self._undelivered = step, []
        return step

    def _schedule(self) -> tuple[int, SchedulerOutput]:
        """Fix the start of the step, and who runs in it.

        While slots are held, steps tile the time: this one starts where the last one ended. A
        request that arrived or was handed over after that cannot be admitted at a stamp before;
        if a slot is free for it, this step only closes the time up to now, and the next one
        admits.
        """
        now_ns = self._clock()
        start_ns = self._boundary_ns if self._scheduler.running else now_ns
        self._boundary_ns = start_ns
        if self._scheduler.running and self._scheduler.newcomer_between(start_ns, now_ns):
            return start_ns, self._scheduler.boundary()
        return start_ns, self._scheduler.schedule(start_ns)

    def _run(
        self, plan: SchedulerOutput
    ) -> tuple[list[int | None], Sequence[TokenLogprobs | None]]:
        """The next token of each row that wants one; None where the logits allow none.

        Beside it what the model thought there, for the rows that ask for it.
        """
        if not plan.rows:
            return [], ()
        logits = self._runner.run(plan)
        sampled = plan.sampled
        if not sampled:
            return [], ()
        tokens = sample(logits, sampled, self._runner.highest)
        return tokens, logprobs(logits, tokens, [each.params.logprobs for each in sampled])

    def _update(
        self,
        plan: SchedulerOutput,
        tokens: Sequence[int | None],
        told: Sequence[TokenLogprobs | None],
        end_ns: int,
    ) -> list[TokenOutput]:
        """Give every row its token, and retire what has ended."""
        produced: list[TokenOutput] = []
        self._boundary_ns = end_ns
        self._scheduler.computed(plan)
        for request, token, thought in zip(plan.sampled, tokens, told, strict=True):
            if token is None:
                self._finish(request, FinishReason.ERROR, end_ns, _NOT_FINITE)
                continue
            try:
                request.append(token, end_ns, thought)
            except RequestRefused as refusal:
                self._finish(request, FinishReason.ERROR, end_ns, str(refusal))
            else:
                if (reason := request.reason_to_stop()) is not None:
                    self._finish(request, reason, end_ns)
            produced.append(
                TokenOutput(
                    request_id=request.request_id,
                    token_id=token,
                    text=None if request.text is None else request.text.news(),
                    logprobs=thought,
                )
            )
        return produced

    def _abandon(self, error: str) -> None:
        """Put the books in order after a step that failed, wherever it did."""
        for request in self._scheduler.abandon(self._live.values()):
            if request.status is not RequestStatus.FINISHED:
                request.finish(FinishReason.ERROR, self._boundary_ns, error)
            self._leave(request)

    def _finish(
        self, request: Request, reason: FinishReason, now_ns: int, error: str | None = None
    ) -> None:
        self._scheduler.finish(request, reason, now_ns, error)
        self._leave(request)

    def _leave(self, request: Request) -> None:
        """Deliver what has come of a request, and forget it."""
        if request.finish_reason is None:
            raise ValueError(f"request {request.request_id!r} has not finished")
        tokens = request.output_token_ids
        self._undelivered.append(
            RequestOutput(
                request_id=request.request_id,
                prompt_token_ids=request.prompt_token_ids,
                token_ids=tokens,
                finish_reason=request.finish_reason,
                error=request.error,
                timings=request.timings(),
                cached_tokens=request.cached_tokens,
                logprobs=tuple(request.logprobs),
                decode=self._decoder(tokens, request.text),
            )
        )
        del self._live[request.request_id]

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
            text=admitted.text,
        )
        with interrupts_wait():
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
        with interrupts_wait():
            self._finish(request, FinishReason.ABORT, ended_ns)

    def knows(self, request_id: str) -> bool:
        """Whether the request has not ended, or a step has yet to deliver its output."""
        undelivered = [*self._undelivered, *(self._unread.outputs if self._unread else ())]
        return request_id in self._live or any(o.request_id == request_id for o in undelivered)

    def collect(self, request_id: str) -> RequestOutput | None:
        """Take the output of a request that has ended, before a step delivers it; None if none."""
        for place, output in enumerate(self._undelivered):
            if output.request_id == request_id:
                return self._undelivered.pop(place)
        return None

    def has_unfinished(self) -> bool:
        """Whether a step has anything left to do or to deliver."""
        return bool(self._live or self._undelivered or self._unread)

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
        self._undelivered.append(
            RequestOutput(
                request_id=request_id,
                prompt_token_ids=[],
                token_ids=[],
                finish_reason=FinishReason.ERROR,
                error=error,
                timings=timings,
                cached_tokens=None,
                logprobs=(),
                decode=self._decoder([], None),
            )
        )

    def _decoder(self, tokens: list[int], text: OutputText | None) -> Callable[[], str] | None:
        """What makes an output's text when somebody reads it: what grew with it, or the ids."""
        if text is not None:
            return text.__str__
        tokenizer = self._runner.tokenizer
        return partial(tokenizer.decode, tokens) if tokenizer else None

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
            prefix_cache="on" if self.config.prefix_cache else "off",
            max_slots=self.config.max_slots,
            max_batch_tokens=self.config.step_tokens,
            max_model_len=self._runner.max_model_len,
            block_size=self.config.block_size,
            num_blocks=self._runner.num_blocks,
            kv_pool=self._runner.kv_pool,
        )

    def check_integrity(self) -> None:
        """Check that no block and no request is lost.

        Raises:
            IntegrityError: Naming what is.
        """
        self._scheduler.check_integrity(self._live.values())
