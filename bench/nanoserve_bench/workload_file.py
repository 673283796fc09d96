"""A workload of one's own: a JSONL file, one request a line.

Each line is an object with `max_tokens` and either `prompt` (text, for the model's tokenizer) or
`prompt_token_ids`::

    {"prompt": "The capital of France is", "max_tokens": 16}
    {"prompt_token_ids": [504, 3575, 282], "max_tokens": 4}

Blocks must not repeat each other's prompts, so the file is dealt out: block after block takes the
next requests. Everything that is wrong with a file is said at once, with its line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve_bench.errors import PlanError
from nanoserve_bench.faults import shorten
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.plan import RequestLengths, WorkloadPlan
from nanoserve_bench.workload import SUFFIX, WORKLOADS, Prompt

MOST_SLOTS = 32
"""Slots up to which a file is run where none are chosen."""
_MOST_FAULTS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEYS = frozenset({"prompt", "prompt_token_ids", "max_tokens"})

Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadFile:
    """A file that was read whole.

    Attributes:
        name: The file's, without its suffix.
        sha256: Digest of the file.
        prompts: Token ids of each line.
        max_tokens: Tokens that each line asks for.
    """

    name: str
    sha256: str
    prompts: tuple[Prompt, ...]
    max_tokens: tuple[int, ...]

    def planned(self, *, blocks: int, slots: tuple[int, ...]) -> WorkloadPlan:
        """The workload of a study of so many blocks, those included that may be run again.

        Raises:
            PlanError: The file has too few requests for so many blocks.
        """
        requests = len(self.prompts) // blocks
        if requests < 1:
            raise PlanError(
                f"{self.name}{SUFFIX} has {len(self.prompts)} request(s), and {blocks} blocks may "
                "run: no block repeats the prompts of another, so give at least a line for each "
                "(or fewer --blocks)"
            )
        lengths = tuple(
            RequestLengths(prompt_tokens=len(prompt), new_tokens=tokens)
            for prompt, tokens in zip(self.prompts, self.max_tokens, strict=True)
        )[: requests * blocks]
        powers = tuple(2**n for n in range(requests.bit_length()) if 2**n <= MOST_SLOTS)
        return WorkloadPlan(
            name=self.name,
            requests=requests,
            prompt_tokens=max(one.prompt_tokens for one in lengths),
            new_tokens=max(one.new_tokens for one in lengths),
            slots=slots or powers,
            lengths=lengths,
            source=f"sha256:{self.sha256}",
        )


def read_workload(path: Path, model: ModelFolder) -> WorkloadFile:
    """Read a file of requests for a model.

    Raises:
        PlanError: With every fault, each as `file:line: what is wrong`.
    """
    name = path.name.removesuffix(SUFFIX)
    if not _NAME.fullmatch(name) or name in WORKLOADS:
        raise PlanError(
            f"{path}: rename the file: the workload will be called {name!r}, and a name has "
            "letters, digits, dots, _ and -, begins with one of the first two, and is none of "
            + ", ".join(WORKLOADS)
        )
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read: {error}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        del lines[-1]
    reader = _Reader(model)
    for number, line in enumerate(lines, 1):
        reader.read(number, line)
    if not lines:
        raise PlanError(f"{path} holds no request: write one JSON object a line")
    if reader.faults:
        shown = [f"{path}:{number}: {message}" for number, message in reader.faults]
        more = len(shown) - _MOST_FAULTS
        rest = [f"and {more} more"] if more > 0 else []
        raise PlanError("\n".join([*shown[:_MOST_FAULTS], *rest]))
    return WorkloadFile(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        prompts=tuple(reader.prompts),
        max_tokens=tuple(reader.max_tokens),
    )


class _Reader:
    """Gathers requests and faults, line by line."""

    def __init__(self, model: ModelFolder) -> None:
        self._model = model
        self._tokenize: Tokenize | None = None
        self.prompts: dict[Prompt, int] = {}
        self.max_tokens: list[int] = []
        self.faults: list[tuple[int, str]] = []

    def read(self, number: int, line: str) -> None:
        """Read a line."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            self.faults.append((number, f"is not JSON ({error}): {shorten(line)!r}"))
            return
        if not isinstance(value, dict):
            self.faults.append((number, f"is not an object: {shorten(line)!r}"))
            return
        before = len(self.faults)
        self.faults += [(number, message) for message in _form_faults(value)]
        if len(self.faults) > before:
            return
        try:
            prompt = self._prompt(value)
        except PlanError as error:
            self.faults.append((number, str(error)))
            return
        if prompt in self.prompts:
            message = f"repeats the prompt of line {self.prompts[prompt]}: no prompt may come twice"
            self.faults.append((number, message))
            return
        self.prompts[prompt] = number
        self.max_tokens.append(value["max_tokens"])

    def _prompt(self, value: dict[str, Any]) -> Prompt:
        if "prompt" in value:
            if self._tokenize is None:
                # A library that only texts need.
                from nanoserve_bench.systems.tokenise import tokenizer_of  # noqa: PLC0415

                self._tokenize = tokenizer_of(self._model)
            ids = tuple(self._tokenize(value["prompt"]))
            if not ids:
                raise PlanError("prompt has no tokens")
            return ids
        size = self._model.vocabulary.size
        for token in value["prompt_token_ids"]:
            if not 0 <= token < size:
                raise PlanError(
                    f"prompt_token_ids holds {token}, and the ids of {self._model.name} are 0 to "
                    f"{size - 1}"
                )
        return tuple(value["prompt_token_ids"])


def _form_faults(value: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an object, whatever the model is."""
    for key in sorted(value.keys() - _KEYS):
        yield f"unknown key {key!r}: a request has {', '.join(sorted(_KEYS))}"
    if ("prompt" in value) == ("prompt_token_ids" in value):
        yield "give prompt (text) or prompt_token_ids, one of the two"
    if "prompt" in value and not (isinstance(value["prompt"], str) and value["prompt"]):
        yield f"prompt is no text: {shorten(repr(value['prompt']))}"
    ids = value.get("prompt_token_ids", [0])
    if not (isinstance(ids, list) and ids and all(type(token) is int for token in ids)):
        yield f"prompt_token_ids is no list of whole numbers: {shorten(repr(ids))}"
    tokens = value.get("max_tokens")
    if "max_tokens" not in value:
        yield "max_tokens is missing: say how many tokens to ask for"
    elif type(tokens) is not int or tokens < 1:
        yield f"max_tokens is no whole number above 0: {shorten(repr(tokens))}"
