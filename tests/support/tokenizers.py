"""Small tokenizers of the kinds that models have, saved as models save them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers.convert_slow_tokenizer import bytes_to_unicode

from nanoserve.tokenizer import Tokenizer as EngineTokenizer
from nanoserve.tokenizer import TokenizerSource

LETTER = bytes_to_unicode()


def save(tokenizer: Tokenizer, folder: Path) -> EngineTokenizer:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return EngineTokenizer(TokenizerSource(folder=folder))


def byte_level(folder: Path, spellings: Mapping[int, bytes], special: str = "") -> EngineTokenizer:
    """256 tokens: each its own byte, except those that ``spellings`` gives more bytes.

    A special token, if one is given, is the 257th.
    """
    vocab = {"".join(LETTER[b] for b in spellings.get(i, bytes([i]))): i for i in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    if special:
        tokenizer.add_special_tokens([AddedToken(special, special=True)])
    return save(tokenizer, folder)


def byte_fallback(folder: Path, words: list[str], *, strip: bool = True) -> EngineTokenizer:
    """As Llama 2 has it: three special tokens, 256 bytes, then words."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocab = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strip else parts)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:3]])
    return save(tokenizer, folder)


def word_pieces(folder: Path, words: list[str]) -> EngineTokenizer:
    """As BERT has it: a decoder of which the engine knows nothing."""
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token=words[0]))
    tokenizer.decoder = decoders.WordPiece()
    return save(tokenizer, folder)
