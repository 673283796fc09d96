"""`llamacpp`: llama.cpp through the low-level bindings of llama-cpp-python.

The bindings give a batch of tokens of several sequences and their logits; which sequence gets which
tokens in a step is decided here, as llama.cpp's own server does it for its parallel slots: first a
token for every sequence that decodes, then prompts up to the size of a batch. Sampling is the
highest logit. Weights and cache are float32; a quantised file would quantise activations, too.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nanoserve_bench.feeding import feed_of
from nanoserve_bench.protocol import Trial
from nanoserve_bench.records import SystemRun
from nanoserve_bench.systems.admission import Progress, run_admitted
from nanoserve_bench.systems.environments import Environment
from nanoserve_bench.systems.rivals import Rival

BATCH_TOKENS = 512
_ROUND_TOKENS = 32


class LlamaCpp(Rival):
    """One context with a sequence per slot, over a float32 GGUF made from the model's tensors."""

    summary = "llama.cpp, a sequence per slot"
    distribution = "llama_cpp_python"
    environment = Environment(name="llamacpp")
    packages: ClassVar[tuple[str, ...]] = ("gguf",)
    open_loop = True
    attention = "without flash attention"

    def run(self, trial: Trial) -> SystemRun:
        """Every prompt, one in each of `trial.slots` sequences."""
        self._library.llama_memory_clear(self._memory, False)  # noqa: FBT003 - a C function
        return run_admitted(
            _Sequences(self, trial.slots),
            trial.prompts,
            max_tokens=trial.max_tokens,
            slots=trial.slots,
            feed=feed_of(len(trial.prompts), trial.due_ns),
            system=self._launch.system,
            settings=self._description.settings(self._launch),
        )

    def _load(self, converted: Path) -> tuple[str, Mapping[str, object]]:
        # gguf and numpy, which the sweep does not import to plan.
        from nanoserve_bench.systems import canonical, gguf_file  # noqa: PLC0415

        def write(target: Path) -> None:
            tensors = canonical.canonical_tensors(self._folder)
            gguf_file.write_gguf(target, self._config, tensors)

        library: Any = importlib.import_module("llama_cpp")
        self._library = library
        file = self._convert(converted, "gguf", write)
        # Kept, or the library would call what is no more.
        self._quiet = library.llama_log_callback(lambda _level, _text, _data: None)
        library.llama_log_set(self._quiet, ctypes.c_void_p(0))
        library.llama_backend_init()
        model_parameters = library.llama_model_default_params()
        model_parameters.n_gpu_layers = 0
        model = library.llama_model_load_from_file(str(file).encode(), model_parameters)
        if not model:
            raise RuntimeError("llama.cpp cannot load the converted model")
        launch = self._launch
        per_slot = -(-(launch.longest + 1) // _ROUND_TOKENS) * _ROUND_TOKENS
        self.batch_tokens = max(BATCH_TOKENS, launch.most_slots)
        settings: dict[str, Any] = {
            "n_ctx": per_slot * launch.most_slots,
            "n_batch": self.batch_tokens,
            "n_ubatch": self.batch_tokens,
            "n_seq_max": launch.most_slots,
            "n_threads": launch.threads,
            "n_threads_batch": launch.threads,
            "type_k": library.GGML_TYPE_F32,
            "type_v": library.GGML_TYPE_F32,
            "flash_attn_type": 0,
            "kv_unified": False,
            "no_perf": True,
        }
        parameters = library.llama_context_default_params()
        for name, value in settings.items():
            setattr(parameters, name, value)
        self._context = library.llama_init_from_model(model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context with {settings}")
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(self.batch_tokens, 0, 1)
        self._vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        weights = canonical.digest(gguf_file.read_gguf(file, self._config))
        features = library.llama_print_system_info().decode().strip().replace(" ", "")
        return weights, {**settings, "features": features}

    def forget(self, sequence: int) -> None:
        """Empty the cache of a sequence."""
        self._library.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def decode(self, entries: Sequence[_Entry]) -> list[int]:
        """Compute a batch; the most likely next token of each entry that wants one, in order."""
        import numpy as np  # noqa: PLC0415 - the sweep does not import it to plan

        batch = self._batch
        for place, entry in enumerate(entries):
            batch.token[place] = entry.token
            batch.pos[place] = entry.position
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = entry.sequence
            batch.logits[place] = entry.wants_next
        batch.n_tokens = len(entries)
        code = self._library.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode of {len(entries)} tokens failed with {code}")
        shape = (self._vocabulary,)
        return [
            int(
                np.ctypeslib.as_array(
                    self._library.llama_get_logits_ith(self._context, place), shape=shape
                ).argmax()
            )
            for place, entry in enumerate(entries)
            if entry.wants_next
        ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A token of a batch."""

    token: int
    position: int
    sequence: int
    wants_next: bool


@dataclass
class _Running:
    """A request in its sequence: the ids so far, and how many of them the cache holds."""

    sequence: int
    token_ids: list[int]
    end: int
    cached: int = 0


class _Sequences:
    """The context for one trial: which request is in which sequence."""

    def __init__(self, system: LlamaCpp, slots: int) -> None:
        self._system = system
        self._free = list(range(slots))[::-1]
        self._running: dict[int, _Running] = {}

    def admit(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        sequence = self._free.pop()
        self._system.forget(sequence)
        self._running[request] = _Running(
            sequence=sequence, token_ids=list(prompt), end=len(prompt) + max_tokens
        )

    def step(self) -> Iterable[Progress]:
        entries: list[_Entry] = []
        advanced: list[int] = []
        # Those that decode have one token to compute and come first.
        for request, state in sorted(
            self._running.items(), key=lambda item: len(item[1].token_ids) - item[1].cached > 1
        ):
            room = self._system.batch_tokens - len(entries)
            todo = state.token_ids[state.cached : state.cached + room]
            for offset, token in enumerate(todo):
                position = state.cached + offset
                last = position == len(state.token_ids) - 1
                entries.append(_Entry(token, position, state.sequence, last))
            state.cached += len(todo)
            if todo and state.cached == len(state.token_ids):
                advanced.append(request)
        for request, token in zip(advanced, self._system.decode(entries), strict=True):
            state = self._running[request]
            state.token_ids.append(token)
            finished = len(state.token_ids) == state.end
            if finished:
                self._free.append(state.sequence)
                del self._running[request]
            yield Progress(request, (token,), finished)
