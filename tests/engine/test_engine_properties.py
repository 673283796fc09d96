"""Random requests, aborts, failures and tiny pools against a model that checks its own memory.

The runner of these tests keeps the KV pool as a list in which every slot remembers what its token
came after. Before it answers, it reads each sequence back through its block table: a block with two
owners, a lost token or a token in the wrong place is found in the step that does it, and so is a
cached block with another past. Its answer is a hash of the whole sequence, so that a finished
request's tokens can be predicted exactly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from nanoserve import Engine, EngineConfig, RequestOutput, SamplingParams, StepOutput
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS
from nanoserve.sampler import highest
from nanoserve.scheduler import ScheduledRow, SchedulerOutput

VOCAB = 256
EOS = SYNTHETIC_CONFIGS["tiny-llama"].eos_token_ids


def next_token(sequence: list[int]) -> int:
    """What the model of these tests says after ``sequence``: an EOS now and then."""
    value = hash(tuple(sequence))
    return min(EOS) if value % 11 == 0 else value % VOCAB


class Trouble(RuntimeError):
    """The model fails."""


class CheckingRunner:
    """A model that keeps its cache as a list, and checks all of it that it reads."""

    kernel_path = attention_path = weights_digest = kv_pool = "fake"
    tokenizer = None
    model_config = SYNTHETIC_CONFIGS["tiny-llama"]
    max_model_len = 40
    highest = staticmethod(highest)

    def __init__(self, num_blocks: int, block_size: int, rng: random.Random, trouble: float):
        self.num_blocks = num_blocks
        self._size = block_size
        self._rng = rng
        self._trouble = trouble
        self._pool: list[int | None] = [None] * (num_blocks * block_size)
        self.begun_at: dict[str, int] = {}
        self.pieces = 0

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        for block in plan.new_blocks:
            self._pool[block * self._size : (block + 1) * self._size] = [None] * self._size
        for row in plan.rows:
            self._write(row)
        if self._rng.random() < self._trouble:
            raise Trouble
        for row in plan.rows:
            request, stop = row.request, row.start + row.length
            for index, slot in enumerate(request.table.slots(0, stop)):
                assert self._pool[slot] == past(request.token_ids, index)
        logits = torch.zeros(len(plan.sampled), VOCAB)
        for request, line in zip(plan.sampled, logits, strict=True):
            line[next_token(request.token_ids)] = 1.0
        return logits

    def _write(self, row: ScheduledRow) -> None:
        request, stop = row.request, row.start + row.length
        assert row.samples == (stop == len(request.token_ids))
        self.pieces += not row.samples
        self.begun_at.setdefault(request.request_id, row.start)
        for index, slot in enumerate(request.table.slots(row.start, stop), row.start):
            assert self._pool[slot] is None, "a slot is written once"
            self._pool[slot] = past(request.token_ids, index)


def past(token_ids: list[int], index: int) -> int:
    """What the token at ``index`` came after, and itself."""
    return hash(tuple(token_ids[: index + 1]))


class Clock:
    """Time that stands still or jumps."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self.now = 1000

    def __call__(self) -> int:
        self.now += self._rng.choice((0, 0, 1, 1, 5, 100))
        return self.now


@dataclass
class Asked:
    """A request as it was made."""

    prompt: list[int]
    params: SamplingParams
    valid: bool
    number: int


@dataclass
class World:
    """An engine under random use, and all that came of it."""

    seed: int
    trouble: float = 0.0
    asked: dict[str, Asked] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    outputs: dict[str, RequestOutput] = field(default_factory=dict)
    steps: list[StepOutput] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = Clock(self.rng)
        block_size = self.rng.choice((1, 2, 3, 4, 16))
        self.slots = self.rng.choice((1, 2, 3, 5, 8))
        blocks = self.rng.randint(-(-12 // block_size), -(-45 // block_size))
        self.pool_tokens = blocks * block_size
        config = EngineConfig(
            model="fake",
            max_slots=self.slots,
            block_size=block_size,
            max_batch_tokens=self.rng.choice((1, 3, 8, 30, 1000)),
            prefix_cache=self.rng.random() < 0.6,
        )
        self.slots = min(self.slots, config.step_tokens)
        self.cached = config.prefix_cache
        self.runner = CheckingRunner(blocks, block_size, self.rng, self.trouble)
        self.engine = Engine(config, runner=self.runner, clock=self.clock)

    def add(self) -> None:
        number = len(self.asked)
        prompt = [self.rng.randrange(VOCAB) for _ in range(self.rng.choice((0, 1, 2, 5, 9, 20)))]
        if prompt and self.rng.random() < 0.5:  # begin like others
            prompt = [7, 7, 8, 7, 9, 7, 7, 9, 8, 8, 7, 9][: 3 * len(prompt)] + prompt[:9]
        params = SamplingParams(
            max_tokens=self.rng.choice((0, 1, 1, 2, 7, 18)), ignore_eos=self.rng.random() < 0.5
        )
        arrival = self.rng.choice((None, None, -300, -3, 0, 2, 40))
        longest = min(len(prompt) + params.max_tokens, CheckingRunner.max_model_len)
        valid = bool(prompt) and params.max_tokens > 0 and longest - 1 <= self.pool_tokens
        self.asked[str(number)] = Asked(prompt, params, valid, number)
        self.engine.add_request(
            str(number),
            prompt,
            params,
            arrival_ns=None if arrival is None else max(0, self.clock.now + arrival),
        )

    def abort(self) -> None:
        if self.asked:
            name = str(self.rng.randrange(len(self.asked)))
            if name not in self.outputs:
                self.aborted.add(name)
            self.engine.abort(name)

    def step(self) -> None:
        try:
            step = self.engine.step()
        except Trouble:
            self.failures += 1
        else:
            self.steps.append(step)
            for output in step.outputs:
                assert output.request_id not in self.outputs, "delivered twice"
                self.outputs[output.request_id] = output
        self.engine.check_integrity()

    def run(self, actions: int) -> None:
        for _ in range(actions):
            kind = self.rng.random()
            if kind < 0.25:
                self.add()
            elif kind < 0.29:
                self.abort()
            else:
                self.step()
        patience = 200 + 100 * len(self.asked)
        while self.engine.has_unfinished():
            self.step()
            patience -= 1
            assert patience, "a request starves"

    def expected_tokens(self, asked: Asked) -> list[int]:
        sequence = list(asked.prompt)
        longest = min(len(sequence) + asked.params.max_tokens, CheckingRunner.max_model_len)
        while len(sequence) < longest:
            sequence.append(next_token(sequence))
            if sequence[-1] in EOS and not asked.params.ignore_eos:
                break
        return sequence[len(asked.prompt) :]


def make_world(seed: int, actions: int = 600, **settings: Any) -> World:
    world = World(seed, **settings)
    world.run(actions)
    return world


SEEDS = range(24)


@pytest.fixture(scope="module", params=[(s, t) for s in SEEDS for t in (0.0, 0.02)], ids=str)
def world(request: pytest.FixtureRequest) -> World:
    seed, trouble = request.param
    return make_world(seed, trouble=trouble)


def test_every_request_ends_exactly_once_and_with_the_right_tokens(world: World):
    assert world.outputs.keys() == world.asked.keys()
    for name, asked in world.asked.items():
        output = world.outputs[name]
        wanted = world.expected_tokens(asked) if asked.valid else []
        match output.finish_reason.value:
            case "error":
                assert not asked.valid or "Trouble" in (output.error or "")
                assert output.token_ids == wanted[: len(output.token_ids)]
            case "abort":
                assert name in world.aborted
                assert output.token_ids == wanted[: len(output.token_ids)]
            case "stop":
                assert asked.valid
                assert output.token_ids == wanted
                assert wanted[-1] in EOS
            case "length":
                assert asked.valid
                assert output.token_ids == wanted
        assert (output.error is not None) == (output.finish_reason == "error")


def test_the_step_log_and_the_holds_agree_exactly(world: World):
    held = sum(step.holders * (step.end_ns - step.start_ns) for step in world.steps)
    served = sum(output.timings.served_ns for output in world.outputs.values())
    assert held == served


def test_at_every_step_as_many_holds_are_open_as_it_has_holders(world: World):
    holds = [hold for output in world.outputs.values() for hold in output.timings.holds]
    for step in world.steps:
        if step.end_ns > step.start_ns:
            covering = sum(a <= step.start_ns and b >= step.end_ns for a, b in holds)
            touching = sum(max(a, step.start_ns) < min(b, step.end_ns) for a, b in holds)
            assert covering == touching == step.holders <= world.slots
        assert step.prefill_rows + step.decode_rows in (0, step.holders)


def test_cached_tokens_are_those_that_were_there_when_it_got_its_first_slot(world: World):
    for name, output in world.outputs.items():
        cached = output.cached_tokens
        assert cached == world.runner.begun_at.get(name)
        assert (cached is None) == (not output.timings.holds)
        if cached:
            assert world.cached
            assert cached < len(output.prompt_token_ids)


def test_steps_do_not_overlap_and_leave_no_gap_while_slots_are_held(world: World):
    holds = [hold for output in world.outputs.values() for hold in output.timings.holds]
    for before, after in zip(world.steps, world.steps[1:], strict=False):
        assert before.start_ns <= before.end_ns <= after.start_ns
        if after.start_ns > before.end_ns:
            assert not any(max(a, before.end_ns) < min(b, after.start_ns) for a, b in holds)


def test_stamps_are_in_order(world: World):
    step_ends = {step.end_ns for step in world.steps}
    for output in world.outputs.values():
        stamps = output.timings
        flat = [stamp for hold in stamps.holds for stamp in hold]
        assert flat == sorted(flat)
        assert len(stamps.token_ns) == len(output.token_ids)
        assert list(stamps.token_ns) == sorted(stamps.token_ns)
        assert set(stamps.token_ns) <= step_ends
        assert stamps.first_token_ns == (stamps.token_ns[0] if stamps.token_ns else None)
        assert all(any(a <= t <= b for a, b in stamps.holds) for t in stamps.token_ns)
        if stamps.holds:
            assert max(stamps.arrival_ns, stamps.submitted_ns) <= stamps.holds[0][0]
            assert stamps.holds[-1][1] <= stamps.finished_ns
        assert stamps.finished_ns >= stamps.arrival_ns
        assert stamps.queued_ns >= 0
        if output.finish_reason in ("stop", "length"):
            assert stamps.finished_ns == stamps.holds[-1][1] == stamps.token_ns[-1]


def test_nobody_is_overtaken(world: World):
    """Of two requests in the queue, the one that came first gets its first slot first."""
    admitted = [
        (o.timings.arrival_ns, world.asked[name].number, o.timings.submitted_ns, hold[0][0])
        for name, o in world.outputs.items()
        if (hold := o.timings.holds)
    ]
    for arrival, number, submitted, got in admitted:
        for other_arrival, other_number, _, other_got in admitted:
            if (arrival, number) < (other_arrival, other_number) and submitted < other_got:
                assert got <= other_got


def test_the_worlds_are_hard_enough():
    """Preemption, aborts of running requests, failures, idle gaps and boundaries all happen."""
    worlds = [make_world(seed, trouble=0.02) for seed in SEEDS]
    outputs = [output for world in worlds for output in world.outputs.values()]
    steps = [step for world in worlds for step in world.steps]
    assert sum(len(o.timings.holds) > 1 for o in outputs) > 50
    assert sum(o.finish_reason == "abort" and bool(o.timings.holds) for o in outputs) > 5
    assert sum(o.finish_reason == "abort" and not o.timings.holds for o in outputs) > 5
    assert sum(o.finish_reason == "stop" for o in outputs) > 50
    assert sum(world.failures for world in worlds) > 20
    assert sum(step.holders > 0 and step.prefill_rows + step.decode_rows == 0 for step in steps) > 5
    assert sum(step.prefill_rows > 0 and step.decode_rows > 0 for step in steps) > 100
    assert len(steps) > 4000
    assert sum(world.runner.pieces for world in worlds) > 500
    assert sum(o.cached_tokens or 0 for o in outputs) > 2000
