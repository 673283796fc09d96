"""The CSV contract, version 1: one dataclass per file, one field per column.

The annotation of a field is its column's type: `int`, `float`, `bool` (0 or 1), `str`, a tuple of
token ids or stamps (space-separated), holds (`acquired:released` pairs, space-separated), and each
of them `| None` for a column that may be empty. A value that does not exist is an empty cell. Units
stand in the column names. `results.py` reads the files, `writer.py` writes them, and
nothing else does either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from nanoserve_bench.records import ROW, Hold

SCHEMA_VERSION = 1
_HOLDS_OF = "holds="


def token_digest(token_ids: Iterable[int]) -> str:
    """The sha256 (hex) of a token list: of its ids in decimal, joined by single spaces, in ASCII.

    Anyone can recompute it: `printf '504 3575 282' | sha256sum`.
    """
    text = " ".join(str(token_id) for token_id in token_ids)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def slot_of(stamps: str | None) -> str:
    """What a slot is by a system's stamps: `row`, or the word behind `holds=`."""
    words = (stamps or "").split()
    meanings = [word.removeprefix(_HOLDS_OF) for word in words if word.startswith(_HOLDS_OF)]
    return meanings[0] if len(meanings) == 1 and meanings[0] and "holds" not in words else ROW


def stamp_words(stamps: str | None) -> frozenset[str]:
    """What a system says it stamps, whatever its slots are.

    `holds=WORD` counts as `holds`, unless it says nothing or contradicts another word.
    """
    words = frozenset((stamps or "").split())
    slot = slot_of(stamps)
    return words if slot == ROW else words - {_HOLDS_OF + slot} | {"holds"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRow:
    """One worker launch, as the worker itself reports it (`systems.csv`).

    `stamps` lists what the system can stamp, space-separated, out of `holds first_token tokens
    steps`; what is not listed must be empty everywhere, and what is listed may be empty nowhere.
    A system whose slot is no row of the running batch writes `holds=WORD`, such as
    `holds=connection`, in place of `holds`: its factors are compared with those of its like alone.
    `weights` is `sha256:<hex>` over the canonical tensors or `declared:<what>`. `libraries` is
    `name=version` pairs joined by `;`. `machine` is the fingerprint in the manifest.
    """

    FILE: ClassVar[str] = "systems.csv"
    KEY: ClassVar[tuple[str, ...]] = ("launch",)

    launch: int
    block: int
    arm: str
    system: str
    version: str
    revision: str | None
    shape: str
    stamps: str | None
    machine: str
    device: str
    device_name: str
    dtype: str
    matmul_precision: str | None
    threads: int | None
    weights: str | None
    weight_bytes_per_step: int | None
    tokenizer: str | None
    attention: str | None
    cache: str | None
    decoding: str | None
    kernel_path: str | None
    libraries: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingRow:
    """What the device can do at best, measured in the block (`ceilings.csv`)."""

    FILE: ClassVar[str] = "ceilings.csv"
    KEY: ClassVar[tuple[str, ...]] = ("block", "device", "dtype")

    block: int
    device: str
    dtype: str
    buffer_bytes: int
    read_bytes_per_s: float
    matmul_flop_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    """One trial of a cell (`trials.csv`); a warm-up is a trial like any other, and kept.

    `order` counts the trials of a block from 0 in the order in which they ran. `replaces` is the
    block that this one runs again because of contention. `wall_ns` is what the parent saw between
    handing over the trial and the answer. `other_cpu_ns` is the CPU time that processes other than
    the worker used on the whole machine meanwhile.
    """

    FILE: ClassVar[str] = "trials.csv"
    KEY: ClassVar[tuple[str, ...]] = ("block", "cell", "warmup")

    block: int
    replaces: int | None
    launch: int
    cell: str
    order: int
    warmup: bool
    started_at: str
    started_ns: int
    wall_ns: int
    load_before: float | None
    load_after: float | None
    involuntary_switches: int | None
    steal_ns: int | None
    cpu_ns: int | None
    other_cpu_ns: int | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRow:
    """One request of a trial (`requests.csv`); `records.RunRecord` says what each stamp means."""

    FILE: ClassVar[str] = "requests.csv"
    KEY: ClassVar[tuple[str, ...]] = ("block", "cell", "warmup", "request")

    block: int
    cell: str
    warmup: bool
    request: str
    prompt_sha256: str
    prompt_tokens: int
    max_tokens: int
    output_tokens: int
    discarded_tokens: int
    cached_tokens: int | None
    arrival_ns: int
    submitted_ns: int
    holds_ns: tuple[Hold, ...] | None
    first_token_ns: int | None
    finished_ns: int | None
    token_ns: tuple[int, ...] | None
    finish_reason: str
    error: str | None
    output_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    """One row of an engine's step log (`steps.csv`); `records.StepRecord` says how it reads."""

    FILE: ClassVar[str] = "steps.csv"
    KEY: ClassVar[tuple[str, ...]] = ("block", "cell", "warmup", "step")

    block: int
    cell: str
    warmup: bool
    step: int
    start_ns: int
    prefill_rows: int
    decode_rows: int
    holders: int
    waiting: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptRow:
    """A distinct prompt (`prompts.csv`), named by `token_digest`."""

    FILE: ClassVar[str] = "prompts.csv"
    KEY: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputRow:
    """A distinct output (`outputs.csv`), named by `token_digest`; an empty output has no ids."""

    FILE: ClassVar[str] = "outputs.csv"
    KEY: ClassVar[tuple[str, ...]] = ("sha256",)

    sha256: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DivergenceRow:
    """The triage of a request whose output differs from its reference (`divergences.csv`).

    `reference_*` is the baseline's side. Logits and margins come from one teacher-forced reference
    pass over the shared prefix; `noise_floor` is the reference's largest difference against itself,
    alone and in a padded batch; `later_agreement` is the share of later positions that agree under
    teacher forcing (None when there is none). `kind` is `near-tie` or `bug`.
    """

    FILE: ClassVar[str] = "divergences.csv"
    KEY: ClassVar[tuple[str, ...]] = ("block", "cell", "reference_cell", "request")

    block: int
    cell: str
    reference_cell: str
    request: str
    position: int
    token_id: int | None
    reference_token_id: int | None
    text: str | None
    reference_text: str | None
    logit: float | None
    reference_logit: float | None
    top2_margin: float | None
    noise_floor: float | None
    later_agreement: float | None
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRow:
    """The summary of a cell (`sweep.csv`): geometric means over its measured blocks.

    Always recomputed from the other files and refused when it disagrees; no ratio stands here,
    because a ratio needs a sound comparison.
    """

    FILE: ClassVar[str] = "sweep.csv"
    KEY: ClassVar[tuple[str, ...]] = ("cell",)

    cell: str
    arm: str
    system: str
    device: str
    dtype: str
    slots: int
    workload: str
    model: str
    blocks: int
    requests: int
    output_tokens: int
    throughput_tok_per_s: float | None
    batch_occupancy_rows: float | None
    tokens_per_slot_second: float | None
    system_occupancy_requests: float | None
    tokens_per_request_second: float | None
    queue_share: float | None
    prefill_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2el_s: float | None


Row = (
    SystemRow
    | CeilingRow
    | TrialRow
    | RequestRow
    | StepRow
    | PromptRow
    | OutputRow
    | DivergenceRow
    | SweepRow
)
ROW_TYPES: tuple[type[Row], ...] = (
    SystemRow,
    CeilingRow,
    TrialRow,
    RequestRow,
    StepRow,
    PromptRow,
    OutputRow,
    DivergenceRow,
    SweepRow,
)
