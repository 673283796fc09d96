"""Text to ids and back, by way of the model's own tokenizer.

The tokenizer is loaded when text is first seen, not before: an engine that is fed ids never
imports transformers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nanoserve.detokenizer import Detokenizer, detokenizer_maker


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSource:
    """Where a tokenizer's files are: a folder, or one GGUF file in it."""

    folder: Path
    gguf_file: str | None = None


class Tokenizer:
    """The tokenizer of a checkpoint, loaded on first use."""

    def __init__(self, source: TokenizerSource) -> None:
        self._source = source

    @cached_property
    def _backend(self) -> Any:
        from transformers import AutoTokenizer  # noqa: PLC0415 - seconds that ids never pay

        files = {"gguf_file": self._source.gguf_file} if self._source.gguf_file else {}
        return AutoTokenizer.from_pretrained(str(self._source.folder), **files)

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``, with the special tokens that the tokenizer adds itself."""
        return list(self._backend(text)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``, special tokens left out, and every space where it is."""
        text = self._backend.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def detokenizer(self) -> Detokenizer:
        """What turns one output into text token by token; the whole is what ``decode`` gives."""
        return self._new_detokenizer()

    @cached_property
    def _new_detokenizer(self) -> Callable[[], Detokenizer]:
        return detokenizer_maker(getattr(self._backend, "backend_tokenizer", None), self.decode)
