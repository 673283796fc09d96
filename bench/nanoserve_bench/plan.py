"""What a sweep will do, written down before its first trial and never changed afterwards.

`plan.json` is the promise that the gate holds the results to: every cell, every block's order, the
stopping rule, and every refusal that is acknowledged beforehand. Whatever is decided after seeing
a number is not in here, and that is its purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = "vocabulary"
"""Name of the fact that says how many token ids the model has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Something that a system was told, as it was written: how to run, or what it cannot find out.

    What a person declares in this way is shown as declared, and never as measured.
    """

    name: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A system as it takes part: under a name of its own, so that a system can meet itself.

    Attributes:
        name: Unique in the plan, such as `hf-generate` or `hf-generate-again`.
        system: Name of the system (entry point) that it runs.
        version: Version of the system.
        revision: Git revision that the arm runs, where that is chosen; None is the checkout's own.
        options: What the system was told.
    """

    name: str
    system: str
    version: str
    revision: str | None = None
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLengths:
    """How long one request is: tokens of its prompt, and tokens that are asked for."""

    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrivals:
    """When the requests of an open-loop workload are due, whatever the system does.

    Attributes:
        process: `poisson` (exponential gaps, seeded by the plan) or `constant` (equal gaps).
        rate_per_s: Requests per second that are offered.
        objective_ttft_ms: Time to first token that a request must meet to count as good; None
            asks for nothing.
        objective_tpot_ms: Likewise the time per output token after the first.
    """

    process: str
    rate_per_s: float
    objective_ttft_ms: float | None = None
    objective_tpot_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadPlan:
    """A workload and the slot counts at which concurrent systems run it.

    Attributes:
        name: Unique in the plan.
        requests: Requests of a block.
        prompt_tokens: Of the longest prompt, which is every one where there are no `lengths`.
        new_tokens: Asked for by the longest request, likewise.
        slots: Slot counts.
        lengths: One per request, where they differ. Those of block b begin at b x `requests`,
            counted round: either all blocks have the same, or each its own.
        prefix_tokens: Tokens with which all prompts of a block begin.
        source: Where lengths come from: a distribution, or `sha256:<hex>` of a file; empty where
            there are none.
        arrivals: When its requests are due; None hands all of them over at once.
    """

    name: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    slots: tuple[int, ...]
    lengths: tuple[RequestLengths, ...] = ()
    prefix_tokens: int = 0
    source: str = ""
    arrivals: Arrivals | None = None

    def of_block(self, block: int) -> tuple[RequestLengths, ...]:
        """The lengths of a block's requests, in order."""
        alike = RequestLengths(prompt_tokens=self.prompt_tokens, new_tokens=self.new_tokens)
        known = self.lengths or (alike,)
        first = block * self.requests
        return tuple(known[(first + index) % len(known)] for index in range(self.requests))

    @property
    def longest(self) -> int:
        """Most tokens of a request, prompt and output together."""
        known = self.lengths or self.of_block(0)
        return max((one.prompt_tokens + one.new_tokens for one in known), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """(arm, system, device, dtype, slots, workload, model): the unit that a block runs once."""

    id: str
    arm: str
    system: str
    device: str
    dtype: str
    slots: int
    workload: str
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """The stopping rule, declared beforehand.

    Attributes:
        least: Blocks that always run.
        most: Blocks after which the sweep stops, however wide its intervals are.
        target_half_width: Relative half-width of the headline intervals at which it may stop
            between `least` and `most`; None runs `most`.
        most_reruns: Blocks that may be run again because of contention.
    """

    least: int
    most: int
    target_half_width: float | None
    most_reruns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedComparison:
    """A pair of cells whose ratio the study will state: `candidate` over `baseline`.

    `kind` is `rival` (another system), `revision` (the same system at another commit or setting),
    or `self` (A/A: the same thing twice, whose true ratio is 1).
    """

    baseline: str
    candidate: str
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedDevice:
    """A device that was looked for and not measured, and why: a hole, never a number."""

    device: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedArm:
    """An arm that was asked for and not measured, and why: a hole, never a number.

    `device` and `dtype` say where; both None is everywhere. `workloads` are those that it does not
    run; none named are all.
    """

    arm: str
    system: str
    device: str | None
    dtype: str | None
    reason: str
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AcknowledgedRefusal:
    """A refusal that is expected: exact cell and rule, with the reason for accepting the hole."""

    cell: str
    rule: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """`plan.json`. `orders[b]` is the order in which block b runs its cells."""

    schema: int
    run_id: str
    created_at: str
    revision: str | None
    dirty: bool | None
    model: str
    seed: int
    decoding: str
    arms: tuple[Arm, ...]
    headline_baseline: str
    devices: tuple[str, ...]
    skipped_devices: tuple[SkippedDevice, ...]
    dtypes: tuple[str, ...]
    workloads: tuple[WorkloadPlan, ...]
    cells: tuple[Cell, ...]
    comparisons: tuple[PlannedComparison, ...]
    blocks: Blocks
    orders: tuple[tuple[str, ...], ...]
    acknowledged: tuple[AcknowledgedRefusal, ...] = ()
    skipped_arms: tuple[SkippedArm, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A fact about the machine or the environment: a value with its unit (empty for none)."""

    name: str
    value: str | int | float | bool | None
    unit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of the plan: what the ledger keeps so that no sweep is tried until it pleases.

    `outcome` is `running`, `completed`, `interrupted` or `failed: <why>`; a start found `running`
    by a later start was killed, and is recorded as `interrupted`. `plan_sha256` is the digest of
    `plan.json` as this start found it, which the writer fills in: the plan of the first trial.
    `command` is the command line, without the paths of the machine; empty where it was not
    recorded.
    """

    started_at: str
    revision: str | None
    dirty: bool | None
    machine: str
    first_block: int
    outcome: str
    plan_sha256: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDigest:
    """A file of the folder as it stood after the last complete block."""

    name: str
    sha256: str
    bytes: int
    rows: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """`manifest.json`: the machine, the ledger of starts, and a digest of every other file.

    `blocks_done` is how many blocks stand complete in the files; `complete` says whether the
    stopping rule was met. `machine` is the fingerprint that systems.csv repeats.
    """

    schema: int
    run_id: str
    machine: str
    facts: tuple[Fact, ...]
    ledger: tuple[Start, ...]
    blocks_done: int
    complete: bool
    files: tuple[FileDigest, ...]
