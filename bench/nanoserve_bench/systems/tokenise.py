"""A model's tokenizer, for prompts that somebody wrote as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder


def tokenizer_of(model: ModelFolder) -> Callable[[str], Sequence[int]]:
    """From text to the ids that the model's own tokenizer gives, special ones included.

    Raises:
        PlanError: The model has none, or it cannot be loaded.
    """
    path = model.path / "tokenizer.json"
    if not path.is_file():
        raise PlanError(f"{model.name} has no tokenizer.json for a text: give prompt_token_ids")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise PlanError(f"{path} cannot be used: {type(error).__name__}: {error}") from error

    def tokenize(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(text).ids
        return ids

    return tokenize
