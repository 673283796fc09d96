"""What the sweep and a worker say to each other: one JSON object a line, typed at both ends.

The sweep sends a request, the worker answers it, one at a time. The first request is always a
`Launch`; a `Close` or the end of the stream ends the worker. Decoding is strict: an unknown key, a
missing one or a value of another type is an error, so that a worker which writes anything else
to the stream is found out at once.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from nanoserve_bench.plan import Option
from nanoserve_bench.records import RunRecord, Settings, StepRecord

T = TypeVar("T")

STAMPS = ("holds", "first_token", "tokens", "steps")
"""What a system can stamp: slot intervals, first tokens, every token, and a log of its steps."""


class ProtocolError(ValueError):
    """A line that is not a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Load a system. The answer is a `Description`.

    Attributes:
        system: Name of the system (entry point).
        machine: Fingerprint of the machine, to stand in the settings of every run.
        device: Torch device name.
        dtype: Weights and activations.
        threads: Compute threads; they stand in the worker's environment as well.
        model_name: The model as the study names it.
        model_path: Folder with `config.json` and safetensors, the same for every system.
        most_slots: Most slots that a trial will ask for.
        longest: Most tokens of a request, prompt and output together.
        options: What this arm's system is told, out of the options that it has.
    """

    system: str
    machine: str
    device: str
    dtype: str
    threads: int
    model_name: str
    model_path: str
    most_slots: int
    longest: int
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a system says about itself once it is loaded; `schema.SystemRow` says what it means."""

    version: str
    revision: str | None
    shape: str
    stamps: tuple[str, ...]
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
    libraries: tuple[tuple[str, str], ...]

    def settings(self, launch: Launch) -> Settings:
        """The part of it that two sides of a comparison must share."""
        return Settings(
            machine=launch.machine,
            device=launch.device,
            dtype=self.dtype,
            matmul_precision=self.matmul_precision,
            threads=self.threads,
            weights=self.weights,
            tokenizer=self.tokenizer,
            decoding=self.decoding,
            cache=self.cache,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Run a workload once. The answer is a `TrialResult`.

    Attributes:
        slots: Rows that may run at a time.
        prompts: Token ids of each request.
        max_tokens: Tokens to ask for, of each request.
        due_ns: When each request is due, ns after the first, ascending; empty hands all over at
            once. Only systems that say `open_loop` are asked for it.
    """

    slots: int
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]
    due_ns: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What the machine did during a trial; None where the system does not tell.

    Attributes:
        involuntary_switches: Times a thread of the worker was taken off its core.
        cpu_ns: CPU time of the worker, and of the processes that work for it.
        steal_ns: Time the hypervisor gave to other guests, over all cores.
        other_cpu_ns: CPU time of everything else on the machine.
        peak_memory_bytes: Most memory of the worker: resident on a CPU, on the device otherwise.
            None where other processes work for it.
    """

    involuntary_switches: int | None
    cpu_ns: int | None
    steal_ns: int | None
    other_cpu_ns: int | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """The records of a trial, its step log where the system has one, and the machine's reading."""

    records: tuple[RunRecord, ...]
    steps: tuple[StepRecord, ...] | None
    reading: Reading


@dataclass(frozen=True, kw_only=True, slots=True)
class Settle:
    """Wait until the processes that work for the system do nothing. The answer is `Settled`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """They do nothing, or went on for longer than anybody waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureCeilings:
    """Measure what the device can do, over a buffer of this size. The answer is `Ceilings`."""

    buffer_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """The best rates of several repetitions."""

    read_bytes_per_s: float
    matmul_flop_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Look into two outputs for one prompt that differ. The answer is a `Triage`."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    reference_ids: tuple[int, ...]

    def tokens_at(self, position: int) -> tuple[int | None, int | None]:
        """The token of either output at a position; None for one that has ended there."""
        own, reference = (
            ids[position] if position < len(ids) else None
            for ids in (self.output_ids, self.reference_ids)
        )
        return own, reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Triage:
    """What teacher forcing says about a divergence; see `schema.DivergenceRow`."""

    position: int
    text: str | None
    reference_text: str | None
    logit: float | None
    reference_logit: float | None
    top2_margin: float | None
    noise_floor: float | None
    later_agreement: float | None
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Close:
    """End the worker. The answer is `Closed`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """The worker's last message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The answer to any request that could not be carried out."""

    error: str


Request = Launch | Trial | Settle | MeasureCeilings | Divergence | Close
Reply = Description | TrialResult | Settled | Ceilings | Triage | Closed | Failure
_MESSAGES: dict[str, type[Request | Reply]] = {
    message.__name__: message for message in (*typing.get_args(Request), *typing.get_args(Reply))
}


def dump(message: Request | Reply) -> str:
    """A message as its line, without the line feed."""
    return json.dumps([type(message).__name__, dataclasses.asdict(message)], allow_nan=False)


def parse(line: str) -> Request | Reply:
    """The message on a line.

    Raises:
        ProtocolError: The line is not a message.
    """
    try:
        name, body = json.loads(line)
        message: Request | Reply = _read(_MESSAGES[name], body)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError(f"not a message ({error}): {line[:200]!r}") from error
    return message


def _read(annotation: Any, value: Any) -> Any:
    """A value of the annotated type, made from what JSON gave."""
    if isinstance(annotation, types.UnionType):
        if value is None and types.NoneType in typing.get_args(annotation):
            return None
        (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = _hints(annotation)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ProtocolError(f"the keys of {annotation.__name__} are {', '.join(hints)}")
        return annotation(**{n: _field(annotation, n, hints[n], value[n]) for n in hints})
    if typing.get_origin(annotation) is tuple or hasattr(annotation, "_fields"):
        return _read_tuple(annotation, value)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return annotation(value)
    if type(value) is annotation:
        return value
    if annotation is float and type(value) is int:
        return float(value)
    raise ProtocolError(f"{value!r} is not {annotation}")


def _field(record_type: type, name: str, annotation: Any, value: Any) -> Any:
    try:
        return _read(annotation, value)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"{record_type.__name__}.{name}: {error}") from error


def _read_tuple(annotation: Any, value: Any) -> Any:
    if not isinstance(value, list):
        raise ProtocolError(f"{value!r} is not a list")
    if hasattr(annotation, "_fields"):
        items = tuple(_hints(annotation).values())
        return annotation._make(_read(a, v) for a, v in zip(items, value, strict=True))
    items = typing.get_args(annotation)
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_read(items[0], item) for item in value)
    return tuple(_read(a, v) for a, v in zip(items, value, strict=True))


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(record_type: type) -> dict[str, Any]:
    """Annotations of a record, resolved once: `get_type_hints` costs more than the decoding."""
    if record_type not in _HINTS:
        _HINTS[record_type] = typing.get_type_hints(record_type)
    return _HINTS[record_type]
