"""Token ids to text, one token at a time, and never half a character.

What a token spells may be undecided until the next one comes: it may end inside a character. So a
detokenizer gives out text only once nothing that follows can change it, and the law is

    all that ``push`` returned, and ``flush`` at the end, joined  ==  the whole output decoded

to the character. How tokens spell text is the tokenizer's ``decoder``. Two kinds are followed
token by token here; they cover Llama, SmolLM2, Mistral, Qwen and most others:

=================  ================================================================================
``ByteLevel``      a token is a string of bytes, and the text is all of them, decoded as UTF-8 with
                   U+FFFD where that is impossible
``ByteFallback``   a token is text, or one byte; a run of byte tokens is text if all of it is valid
                   UTF-8, and otherwise one U+FFFD for each byte: known only when the run is over
``Whole``          any other: the whole output is decoded again at each token, and text counts as
                   decided when one more token has come and left it as it was
=================  ================================================================================
"""

import codecs
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, Protocol, TypeVar

Spelling = TypeVar("Spelling")

_INVALID = "\N{REPLACEMENT CHARACTER}"
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how such a vocabulary writes a space
_STRIP_ONE_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE_FALLBACK = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


class Detokenizer(Protocol):
    """The text of one growing output."""

    def push(self, token_id: int) -> str:
        """Take a token; the text that has become certain by it."""

    @property
    def tentative(self) -> str:
        """What whole characters would follow the certain text, were this token the last."""

    def flush(self) -> str:
        """The rest of the text; there is no token after it."""


class ByteLevel:
    """For vocabularies of byte strings.

    Args:
        spell: The bytes of a token.
    """

    tentative = ""  # whole characters are certain at once

    def __init__(self, spell: Callable[[int], bytes]) -> None:
        self._spell = spell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Take a token; the characters that end in it."""
        return self._decoder.decode(self._spell(token_id))

    def flush(self) -> str:
        """U+FFFD, if the output ends inside a character."""
        return self._decoder.decode(b"", final=True)


class ByteFallback:
    """For vocabularies of texts, and bytes for what they lack.

    Args:
        spell: The text of a token, or its one byte; None for a token that spells nothing.
        strip: Whether the output loses a space at its very start.
    """

    def __init__(self, spell: Callable[[int], str | int | None], *, strip: bool) -> None:
        self._spell = spell
        self._strip = strip  # until there is text
        self._run = bytearray()

    def push(self, token_id: int) -> str:
        """Take a token; its text and the run of bytes that it ends, or nothing if it is a byte."""
        piece = self._spell(token_id)
        if isinstance(piece, int):
            self._run.append(piece)
            return ""
        return "" if piece is None else self._begin(self._end_run() + piece)

    @property
    def tentative(self) -> str:
        """The run of bytes, if it is text as it stands."""
        text = _text_of(self._run)
        return "" if text is None else text.removeprefix(" " if self._strip else "")

    def flush(self) -> str:
        """The run of bytes at the end."""
        return self._begin(self._end_run())

    def _end_run(self) -> str:
        text = _text_of(self._run)
        if text is None:
            text = _INVALID * len(self._run)
        self._run.clear()
        return text

    def _begin(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text


class Whole:
    """For any tokenizer, at the price of decoding the whole output at each token.

    Args:
        decode: Text of a whole output.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._token_ids: list[int] = []
        self._text = ""
        self._certain = 0  # characters of it

    def push(self, token_id: int) -> str:
        """Take a token; what it has left as it was, up to a character that may be half."""
        before = self._text[self._certain :]
        self._token_ids.append(token_id)
        self._text = self._decode(self._token_ids)
        pairs = zip(before, self._text[self._certain :], strict=False)
        unchanged = takewhile(lambda pair: pair[0] == pair[1], pairs)
        decided = "".join(character for character, _ in unchanged).rstrip(_INVALID)
        self._certain += len(decided)
        return decided

    @property
    def tentative(self) -> str:
        """The text that no token has come after."""
        return self._text[self._certain :].rstrip(_INVALID)

    def flush(self) -> str:
        """The rest of the text."""
        rest = self._text[self._certain :]
        self._certain = len(self._text)
        return rest


def detokenizer_maker(
    backend: Any, decode: Callable[[Sequence[int]], str]
) -> Callable[[], Detokenizer]:
    """What makes a detokenizer for each output of a tokenizer.

    Args:
        backend: Its ``tokenizers.Tokenizer``; None if it has none.
        decode: Text of a whole output, special tokens left out.
    """
    decoder = None if backend is None else backend.decoder
    state: dict[str, Any] = {} if decoder is None else json.loads(decoder.__getstate__())
    if state.get("type") == "ByteLevel":
        spell_bytes = _speller(backend, _bytes_of, nothing=b"")
        return lambda: ByteLevel(spell_bytes)
    parts = state.get("decoders", [])
    if parts[:3] == _BYTE_FALLBACK and parts[3:] in ([], [_STRIP_ONE_SPACE]):
        spell_piece: Callable[[int], str | int | None] = _speller(backend, _piece_of, nothing=None)
        return lambda: ByteFallback(spell_piece, strip=len(parts) > len(_BYTE_FALLBACK))
    return lambda: Whole(decode)


def _speller(
    backend: Any, read: Callable[[str], Spelling], *, nothing: Spelling
) -> Callable[[int], Spelling]:
    """What a token spells, remembered: special tokens and ids without a token spell nothing."""
    added = backend.get_added_tokens_decoder().items()
    special = frozenset(token_id for token_id, token in added if token.special)

    @cache
    def spell(token_id: int) -> Spelling:
        token = None if token_id in special else backend.id_to_token(token_id)
        return nothing if token is None else read(token)

    return spell


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's).

    Bytes that print stand for themselves, and the others, in order, are U+0100 and what follows.
    """
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in prints]
    alphabet = {chr(byte): byte for byte in prints}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _bytes_of(token: str) -> bytes:
    """An added token may hold characters that stand for no byte: then it is plain text."""
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()


def _piece_of(token: str) -> str | int | None:
    if len(token) == len("<0x00>") and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            pass
    return token.replace(_SPACE, " ")


def _text_of(run: bytearray) -> str | None:
    try:
        return run.decode()
    except UnicodeDecodeError:
        return None
