"""Token by token or all at once: the same text, to the character, whatever the tokens are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nanoserve.detokenizer import ByteFallback, ByteLevel, Detokenizer, Whole
from nanoserve.models.weights import packaged_gguf
from nanoserve.tokenizer import Tokenizer, TokenizerSource
from support.tokenizers import byte_fallback, byte_level, word_pieces

WORDS = ["▁the", "▁", "s", "▁你好", "é", "!", "▁▁▁", "ing", "<0xZZ>", "a b"]


def pieces(detokenizer: Detokenizer, token_ids: Sequence[int]) -> list[str]:
    return [*map(detokenizer.push, token_ids), detokenizer.flush()]


def agree(tokenizer: Tokenizer, token_ids: Sequence[int]) -> None:
    """Law: the pieces joined are the decoded whole, at every length."""
    told = pieces(tokenizer.detokenizer(), token_ids)
    assert "".join(told) == tokenizer.decode(token_ids), token_ids
    for length in range(len(token_ids)):
        detokenizer = tokenizer.detokenizer()
        beginning = "".join(map(detokenizer.push, token_ids[:length]))
        whole = tokenizer.decode(token_ids[:length])
        assert whole.startswith(beginning + detokenizer.tentative)
        assert set(whole[len(beginning + detokenizer.tentative) :]) <= {"\ufffd"}
        assert beginning + detokenizer.flush() == whole


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    return byte_level(folder, {3: b"\x98\x80!", 4: b" the", 5: b"\xf0\x9f"}, special="<|end|>")


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_fallback(tmp_path_factory.mktemp("fallback"), WORDS)


@pytest.fixture(scope="module")
def unstripped(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_fallback(tmp_path_factory.mktemp("unstripped"), WORDS, strip=False)


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("words")
    return word_pieces(folder, ["<unk>", "play", "##ing", ".", "'", "##s", "do", "n't", "\ufffd"])


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    path = packaged_gguf()
    return Tokenizer(TokenizerSource(folder=path.parent, gguf_file=path.name))


def encoded(text: str) -> list[int]:
    return list(text.encode())


def test_a_character_split_over_tokens_comes_out_whole_with_its_last_byte(bytewise: Tokenizer):
    assert pieces(bytewise.detokenizer(), encoded("a😀é")) == ["a", "", "", "", "😀", "", "é", ""]


def test_a_token_that_ends_one_character_and_begins_text_gives_both(bytewise: Tokenizer):
    assert pieces(bytewise.detokenizer(), [5, 3, 4]) == ["", "😀!", " the", ""]


def test_half_a_character_at_the_end_is_told_when_the_output_ends(bytewise: Tokenizer):
    assert pieces(bytewise.detokenizer(), [97, *encoded("😀")[:3]]) == ["a", "", "", "", "\ufffd"]


def test_bytes_that_are_no_text_are_told_as_soon_as_that_is_certain(bytewise: Tokenizer):
    told = pieces(bytewise.detokenizer(), [0xF0, 97, 0xFF, 98])
    assert told == ["", "\ufffda", "\ufffd", "b", ""]


def test_special_tokens_and_ids_without_a_token_spell_nothing(bytewise: Tokenizer):
    told = pieces(bytewise.detokenizer(), [0xC3, 256, 100_000, 0xA9])
    assert told == ["", "", "", "é", ""]
    agree(bytewise, [0xC3, 256, 100_000, 0xA9])


def test_a_run_of_byte_tokens_waits_until_it_is_over(fallback: Tokenizer):
    """The byte after a character can turn it into U+FFFD, so it is not certain before."""
    run = [3 + byte for byte in "你".encode()]
    the = 259
    assert pieces(fallback.detokenizer(), [*run, the]) == ["", "", "", "你 the", ""]
    assert pieces(fallback.detokenizer(), [*run, 3 + 0xFF, the])[-2] == "\ufffd" * 4 + " the"
    detokenizer = fallback.detokenizer()
    assert [(detokenizer.push(token), detokenizer.tentative) for token in run] == [
        ("", ""),
        ("", ""),
        ("", "你"),
    ]


def test_one_space_is_lost_at_the_very_start_and_nowhere_else(
    fallback: Tokenizer, unstripped: Tokenizer
):
    the, spaces = 259, 265
    assert pieces(fallback.detokenizer(), [1, the, the]) == ["", "the", " the", ""]
    assert pieces(fallback.detokenizer(), [spaces, the]) == ["  ", " the", ""]
    assert pieces(unstripped.detokenizer(), [1, the]) == ["", " the", ""]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bytewise", ByteLevel),
        ("fallback", ByteFallback),
        ("unstripped", ByteFallback),
        ("wordy", Whole),
    ],
)
def test_random_tokens_come_out_as_the_whole_decoded(
    name: str, kind: type, request: pytest.FixtureRequest
):
    tokenizer: Tokenizer = request.getfixturevalue(name)
    assert isinstance(tokenizer.detokenizer(), kind)
    size = tokenizer._backend.vocab_size + 2
    rng = random.Random(name)
    texts = "a😀 the 你好é\u0301!\ufffd"
    for _ in range(60):
        ids = [rng.randrange(size) for _ in range(rng.randrange(12))]
        if kind is not Whole and rng.random() < 0.5:
            first = 0 if kind is ByteLevel else 3
            bits = "".join(rng.choices(texts, k=3)).encode()
            ids[rng.randrange(len(ids) + 1) :] = [first + b for b in bits[rng.randrange(3) :]]
        agree(tokenizer, ids)


def test_a_tokenizer_without_a_decoder_of_its_own_is_asked_for_the_whole():
    def decode(token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode(errors="replace")

    for text in ("a😀b", "é", "", "\ufffd!"):
        assert "".join(pieces(Whole(decode), encoded(text))) == text
    detokenizer = Whole(decode)
    seen = [(detokenizer.push(token), detokenizer.tentative) for token in encoded("a😀b")]
    assert seen == [("", "a"), ("a", ""), ("", ""), ("", ""), ("", "😀"), ("😀", "b")]
    assert detokenizer.flush() == "b"


@pytest.mark.weights
def test_the_tokens_of_smollm2_come_out_as_transformers_decodes_them(smollm2: Tokenizer):
    assert isinstance(smollm2.detokenizer(), ByteLevel)
    rng = random.Random(5)
    for _ in range(20):
        agree(smollm2, [rng.randrange(49_160) for _ in range(30)])
    agree(smollm2, smollm2.encode("Grüße 👩‍👩‍👧 <|im_end|> 你好, x -= 1 ;\n\n\tq"))


@pytest.mark.weights
def test_every_single_token_of_smollm2_is_spelled_as_transformers_spells_it(smollm2: Tokenizer):
    make: Callable[[], Any] = smollm2.detokenizer
    wrong = [
        token
        for token in range(49_160)
        if "".join(pieces(make(), [token])) != smollm2.decode([token])
    ]
    assert wrong == []


def test_spaces_stay_where_the_model_put_them(tmp_path: Path):
    """Cleaning up would turn " ." into "."; it has no place in code, and none in a stream."""
    tokenizer = byte_level(tmp_path, {})
    tokenizer._backend.clean_up_tokenization_spaces = True
    assert tokenizer.decode(encoded("x . y")) == "x . y"
