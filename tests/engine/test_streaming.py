"""Text while it grows, and strings that end it: through the engine, on a model that says a script.

The model of these tests has a byte-level tokenizer whose first 256 ids are the bytes themselves,
but for a few that spell several; what it says to a prompt is written down beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from nanoserve import LLM, Engine, RequestOutput, SamplingParams, StreamOutput
from nanoserve.models.synthetic import SYNTHETIC_CONFIGS
from nanoserve.sampler import highest
from nanoserve.scheduler import SchedulerOutput
from nanoserve.tokenizer import Tokenizer
from support.tokenizers import byte_level

EOS, LO_EN, D_SO, TAIL_END, ND_HALF = 2, 3, 4, 5, 6
SPELLINGS = {LO_EN: b"lo EN", D_SO: b"D so", TAIL_END: b"\x80END", ND_HALF: b"ND\xf0"}
GRIN = list("😀".encode())


class ScriptedRunner:
    """A model that answers a prompt with what is written down for its first token."""

    kernel_path = attention_path = weights_digest = kv_pool = "script"
    model_config = SYNTHETIC_CONFIGS["tiny-llama"]
    max_model_len = 20
    highest = staticmethod(highest)

    def __init__(self, tokenizer: Tokenizer | None, num_blocks: int) -> None:
        self.tokenizer = tokenizer
        self.num_blocks = num_blocks
        self.scripts: dict[int, list[int]] = {}

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        logits = torch.zeros(len(plan.sampled), 256)
        for request, line in zip(plan.sampled, logits, strict=True):
            script = self.scripts[request.token_ids[0]]
            line[script[len(request.output_token_ids)]] = 5.0
        return logits


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_level(tmp_path_factory.mktemp("tokenizer"), SPELLINGS)


def over(runner: ScriptedRunner) -> LLM:
    """An ``LLM`` on a model of the tests."""
    llm = LLM("synthetic:tiny-llama", max_slots=4, block_size=4, max_model_len=20)
    llm.engine = Engine(llm.engine.config, runner=runner)
    return llm


class Says:
    """An ``LLM`` on a scripted model."""

    def __init__(self, tokenizer: Tokenizer | None, *, num_blocks: int = 40) -> None:
        self.runner = ScriptedRunner(tokenizer, num_blocks)
        self.llm = over(self.runner)
        self._prompts = iter(range(10, 250))

    def prompt(self, script: Sequence[int]) -> list[int]:
        """A prompt to which the model says this."""
        prompt = [next(self._prompts)]
        self.runner.scripts[prompt[0]] = [*script]
        return prompt

    def generate(self, script: Sequence[int], **params: Any) -> RequestOutput:
        wanted = SamplingParams(**{"max_tokens": len(script), **params})
        (output,) = self.llm.generate([self.prompt(script)], wanted)
        return output

    def stream(self, script: Sequence[int], **params: Any) -> list[StreamOutput]:
        wanted = SamplingParams(**{"max_tokens": len(script), **params})
        return list(self.llm.stream(self.prompt(script), wanted))


@pytest.fixture
def says(tokenizer: Tokenizer) -> Says:
    return Says(tokenizer)


def texts(pieces: Sequence[StreamOutput]) -> list[str | None]:
    return [piece.text for piece in pieces]


def told(text: str) -> list[int]:
    return list(text.encode())


# ---- stop strings ---------------------------------------------------------------------------


def test_a_stop_string_that_spans_two_tokens(says: Says):
    output = says.generate([*told("hel"), LO_EN, D_SO, *told("!")], stop=["END"])
    assert output.text == "hello "
    assert output.token_ids == [*told("hel"), LO_EN, D_SO], "token ids stay whole"
    assert output.finish_reason == "stop"


def test_a_stop_string_in_the_output_text_ends_it_if_that_is_asked_for(says: Says):
    script = [*told("hel"), LO_EN, D_SO, *told("!")]
    output = says.generate(script, stop=["END"], include_stop_str_in_output=True)
    assert output.text == "hello END"
    assert output.token_ids == script[:5]


def test_a_stop_string_that_begins_inside_a_characters_token(says: Says):
    output = says.generate([*GRIN[:3], TAIL_END, *told("x")], stop=["END"])
    assert output.text == "😀"
    assert output.finish_reason == "stop"


def test_a_stop_string_of_characters_that_are_split_over_tokens(says: Says):
    output = says.generate([*told("a"), *GRIN, *told("b")], stop="😀")
    assert (output.text, output.token_ids) == ("a", [97, *GRIN])


def test_a_stop_string_at_the_very_first_token(says: Says):
    output = says.generate([*told("."), *told("more")], stop=["."])
    assert (output.text, output.token_ids, output.finish_reason) == ("", [46], "stop")


def test_a_stop_string_in_the_prompt_ends_nothing(says: Says):
    prompt = [*says.prompt(told("D and on")), *told(" END")]
    params = SamplingParams(max_tokens=8, stop=["END", "ENDD"])
    (output,) = says.llm.generate([prompt], params)
    assert (output.text, output.finish_reason) == ("D and on", "length")


def test_of_two_stop_strings_one_the_beginning_of_the_other_the_shorter_ends_it(says: Says):
    for stop in (["EN", "END"], ["END", "EN"]):
        output = says.generate(told("an END"), stop=stop, include_stop_str_in_output=True)
        assert (output.text, output.token_ids) == ("an EN", told("an EN"))


def test_a_stop_string_that_never_gets_complete_is_text(says: Says):
    output = says.generate(told("the EN"), stop=["END"])
    assert (output.text, output.finish_reason) == ("the EN", "length")


def test_half_a_character_after_what_is_held_back_comes_after_it(says: Says):
    output = says.generate([*told("the EN"), *GRIN[:2]], stop=["END"])
    assert output.text == "the EN\ufffd"


def test_half_a_character_behind_a_stop_string_is_no_text(says: Says):
    output = says.generate([*told("the E"), ND_HALF, *told("x")], stop=["END"])
    assert (output.text, output.token_ids) == ("the ", [*told("the E"), ND_HALF])


def test_a_stop_string_completed_by_the_last_token_allowed_is_a_stop(says: Says):
    output = says.generate(told("the END"), stop=["END"])
    assert (output.text, output.finish_reason) == ("the ", "stop")


def test_an_eos_or_a_stop_id_ends_the_output_before_the_stop_string_does(says: Says):
    output = says.generate([*told("EN"), EOS, *told("D")], stop=["END"])
    assert (output.token_ids, output.finish_reason) == ([*told("EN"), EOS], "stop")
    assert output.text == "EN\x02"
    output = says.generate(told("EN;D"), stop=["END"], stop_token_ids=[ord(";")])
    assert output.text == "EN;"


def test_stop_strings_survive_preemption(tokenizer: Tokenizer):
    crowded = Says(tokenizer, num_blocks=4)
    prompts = [crowded.prompt([*told("12345"), LO_EN, D_SO]) for _ in range(4)]
    outputs = crowded.llm.generate(prompts, SamplingParams(max_tokens=7, stop=["END"]))
    assert [output.text for output in outputs] == ["12345lo "] * 4
    assert any(len(output.timings.holds) > 1 for output in outputs)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"stop": ["END"]}, "stop strings are about text"), ({"detokenize": True}, "detokenize is")],
)
def test_stop_strings_without_a_tokenizer_are_refused(params: dict[str, Any], words: str):
    says = Says(None)
    bad = SamplingParams(max_tokens=2, **params)
    good = SamplingParams(max_tokens=2)
    refused, served = says.llm.generate([says.prompt([5, 6]), says.prompt([5, 6])], [bad, good])
    assert refused.finish_reason == "error"
    assert refused.error is not None
    assert words in refused.error
    assert "use stop_token_ids" in refused.error
    assert served.token_ids == [5, 6]


def test_a_bias_outside_the_vocabulary_is_refused_alone(says: Says):
    bad = SamplingParams(max_tokens=2, logit_bias={256: 1.0})
    good = SamplingParams(max_tokens=2, logit_bias={255: 1.0})
    refused, served = says.llm.generate([says.prompt([5, 6]), says.prompt([5, 6])], [bad, good])
    assert refused.error == "logit_bias names token 256, outside the vocabulary of 256 ids"
    assert served.token_ids == [5, 6]


# ---- streaming ------------------------------------------------------------------------------


def test_a_character_split_over_tokens_is_streamed_whole(says: Says):
    pieces = says.stream([*told("a"), *GRIN, *told("é"), *told("b")])
    assert texts(pieces) == ["a", "", "", "", "😀", "", "é", "b"]
    assert [piece.token_ids for piece in pieces] == [(97,), *((b,) for b in [*GRIN, 195, 169, 98])]
    assert [piece.output is None for piece in pieces] == [True] * 7 + [False]
    assert pieces[-1].output is not None
    assert pieces[-1].output.text == "a😀éb"


def test_half_a_character_at_the_end_of_a_stream_is_told_as_invalid(says: Says):
    pieces = says.stream([*told("a"), *GRIN[:3]])
    assert texts(pieces) == ["a", "", "", "\ufffd"]
    assert pieces[-1].output is not None
    assert pieces[-1].output.text == "a\ufffd"


def test_what_may_become_a_stop_string_is_held_back(says: Says):
    script = [*told("a E"), *told("N"), *told("x"), LO_EN, D_SO]
    pieces = says.stream(script, stop=["END"])
    assert texts(pieces) == ["a", " ", "", "", "ENx", "lo ", ""]
    pieces = says.stream(script, stop=["END"], include_stop_str_in_output=True)
    assert texts(pieces) == ["a", " ", "", "", "ENx", "lo ", "END"]
    pieces = says.stream(script[:-1], stop=["END"])
    assert texts(pieces) == ["a", " ", "", "", "ENx", "lo EN"], "it did not become one"


def test_the_pieces_of_a_stream_are_the_output(says: Says):
    for script in ([*told("x"), LO_EN, *GRIN, 0xFF, EOS], [*GRIN[:2], D_SO, TAIL_END]):
        for params in ({}, {"stop": "EN"}, {"stop": ["D", "so\ufffd"]}, {"ignore_eos": True}):
            pieces = says.stream(script, **params)
            output = pieces[-1].output
            assert output is not None
            assert "".join(piece.text or "" for piece in pieces) == output.text
            assert [token for piece in pieces for token in piece.token_ids] == output.token_ids
            again = says.generate(script, **params)
            assert (again.text, again.token_ids) == (output.text, output.token_ids)
            assert again.finish_reason == output.finish_reason


def test_steps_tell_the_text_of_requests_that_want_it_and_of_no_others(says: Says):
    engine = says.llm.engine
    script = [*told("a"), *GRIN, *told("b")]
    engine.add_request("text", says.prompt(script), SamplingParams(max_tokens=6, detokenize=True))
    engine.add_request("ids", says.prompt(script), SamplingParams(max_tokens=6))
    deltas: dict[str, list[str | None]] = {"text": [], "ids": []}
    outputs = {}
    while engine.has_unfinished():
        step = engine.step()
        for token in step.tokens:
            deltas[token.request_id].append(token.text)
        outputs |= {output.request_id: output for output in step.outputs}
    assert deltas == {"text": ["a", "", "", "", "😀", "b"], "ids": [None] * 6}
    assert outputs["text"].text == outputs["ids"].text == "a😀b"


def test_closing_a_stream_early_aborts_its_request(says: Says):
    stream = says.llm.stream(says.prompt(told("abcdefgh")), SamplingParams(max_tokens=8))
    assert next(stream).text == "a"
    assert next(stream).text == "b"
    assert says.llm.engine.has_unfinished()
    stream.close()
    assert not says.llm.engine.has_unfinished()
    says.llm.engine.check_integrity()
    assert says.generate(told("xy")).text == "xy"


def test_a_stream_that_is_never_begun_asks_for_nothing(says: Says):
    says.llm.stream([10])
    assert not says.llm.engine.has_unfinished()


def test_a_stream_aborted_from_outside_still_tells_what_was_held_back(says: Says):
    stream = says.llm.stream(
        says.prompt(told("a ENDX")), SamplingParams(max_tokens=6, stop=["ENDX"])
    )
    pieces = [next(stream) for _ in range(4)]
    says.llm.engine.abort("stream-0")
    pieces += stream
    assert texts(pieces) == ["a", " ", "", "", "EN"]
    assert pieces[-1].token_ids == ()
    assert pieces[-1].output is not None
    assert (pieces[-1].output.finish_reason, pieces[-1].output.text) == ("abort", "a EN")


def test_a_prompt_that_cannot_be_served_is_a_stream_of_one_piece(says: Says):
    (piece,) = says.llm.stream([])
    assert piece.output is not None
    assert piece.output.error == "the prompt is empty: give at least one token"
    assert (piece.text, piece.token_ids) == ("", ())
    (piece,) = says.llm.stream([5], {"temperature": 1})  # type: ignore[arg-type]
    assert piece.output is not None
    assert "params must be SamplingParams, not dict" in str(piece.output.error)


def test_two_streams_and_a_generate_between_their_pieces_lose_nothing(says: Says):
    engine = says.llm.engine
    engine.add_request("own", says.prompt(told("own")), SamplingParams(max_tokens=3))
    first = says.llm.stream(says.prompt(told("abcdef")), SamplingParams(max_tokens=6))
    second = says.llm.stream(says.prompt(told("uvw")), SamplingParams(max_tokens=3))
    mixed = [next(first).text, next(second).text, next(first).text]
    assert says.generate(told("mnopq")).text == "mnopq"
    mixed += [*texts(list(second)), *texts(list(first))]
    assert mixed == ["a", "u", "b", "v", "w", "c", "d", "e", "f"]
    (own,) = engine.step().outputs
    assert (own.request_id, own.text) == ("own", "own")
    assert not engine.has_unfinished()


def test_requests_of_the_engine_may_have_any_names(says: Says):
    engine = says.llm.engine
    for name in ("stream-0", "generate-1"):
        engine.add_request(name, says.prompt(told("own")), SamplingParams(max_tokens=3))
    assert [piece.text for piece in says.stream(told("xy"))] == ["x", "y"]
    assert says.generate(told("z")).text == "z"
    outputs = []
    while engine.has_unfinished():
        outputs += engine.step().outputs
    assert {output.request_id: output.text for output in outputs} == {
        "stream-0": "own",
        "generate-1": "own",
    }


def test_a_stream_whose_output_somebody_else_took_says_so(says: Says):
    stream = says.llm.stream(says.prompt(told("ab")), SamplingParams(max_tokens=2))
    next(stream)
    says.llm.engine.step()
    with pytest.raises(RuntimeError, match="another step took the output of 'stream-0'"):
        next(stream)


def test_a_model_without_a_tokenizer_streams_ids():
    says = Says(None)
    pieces = says.stream([7, 8, 9])
    assert [(piece.text, piece.token_ids) for piece in pieces] == [
        (None, (7,)),
        (None, (8,)),
        (None, (9,)),
    ]


def test_logprobs_come_with_the_tokens_and_with_the_output(says: Says):
    pieces = says.stream(told("ab"), logprobs=2, temperature=3.0, logit_bias={98: -1.0}, top_k=1)
    output = pieces[-1].output
    assert output is not None
    assert output.logprobs == tuple(piece.logprobs for piece in pieces)
    expected = torch.zeros(256)
    expected[97] = 5.0
    wanted = expected.log_softmax(0)
    assert output.logprobs[0].sampled.token_id == 97
    assert output.logprobs[0].sampled.logprob == wanted[97].item()
    assert [(each.token_id, each.logprob) for each in output.logprobs[0].top] == [
        (97, wanted[97].item()),
        (0, wanted[0].item()),
    ]
    assert says.generate(told("ab")).logprobs == ()


class Unspeakable:
    """A tokenizer that fails on a token."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return "?"

    def detokenizer(self) -> Any:
        return self

    tentative = ""

    def push(self, token_id: int) -> str:
        if token_id == 99:
            raise KeyError(token_id)
        return "."

    def flush(self) -> str:
        return "!"


def test_a_token_that_the_tokenizer_cannot_spell_ends_that_request_alone():
    says = Says(Unspeakable())  # type: ignore[arg-type]
    params = SamplingParams(max_tokens=3, detokenize=True)
    bad, good = says.llm.generate([says.prompt([5, 99, 5]), says.prompt([5, 5, 5])], params)
    assert bad.error == "the tokenizer cannot spell token 99: KeyError: 99"
    assert (bad.token_ids, bad.text) == ([5, 99], ".!")
    assert (good.text, good.finish_reason) == ("...!", "length")


# ---- symptoms in the engine -------------------------------------------------------------------


def test_penalties_see_the_output_as_it_grows_and_survive_preemption(tokenizer: Tokenizer):
    """The favourite's 9 falls to 5 and 3 as it is said; then 4 is more, and falls to 0."""
    params = SamplingParams(max_tokens=4, presence_penalty=2.0, frequency_penalty=2.0)

    class Insists(ScriptedRunner):
        def run(self, plan: SchedulerOutput) -> torch.Tensor:
            logits = torch.zeros(len(plan.sampled), 256)
            logits[:, 70] = 9.0
            logits[:, 71] = 4.0
            return logits

    def outputs(num_blocks: int) -> list[RequestOutput]:
        return over(Insists(tokenizer, num_blocks)).generate([[70, 70, 70]] * 3, params)

    roomy, crowded = outputs(50), outputs(2)
    assert roomy[0].token_ids == [70, 70, 71, 70]
    assert [each.token_ids for each in roomy + crowded] == [roomy[0].token_ids] * 6
    assert any(len(output.timings.holds) > 1 for output in crowded)
