"""The offline door: prompts in, outputs out, all at their end or one as it grows."""

import dataclasses
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from nanoserve._checks import is_sequence, shown
from nanoserve.admission import Prompt
from nanoserve.config import EngineConfig
from nanoserve.engine import Engine
from nanoserve.errors import ConfigError
from nanoserve.outputs import RequestOutput, StreamOutput, TokenOutput
from nanoserve.sampling_params import SamplingParams


class LLM:
    """A model that answers lists of prompts.

    Args:
        model: A model's name (see ``EngineConfig.model``), or a whole configuration.
        settings: Further settings of ``EngineConfig``, if ``model`` is a name.

    Attributes:
        engine: The engine underneath.

    Raises:
        ConfigError: On an unknown setting or a bad value.
        ModelError: When the model cannot be loaded.
    """

    def __init__(self, model: str | EngineConfig, **settings: Any) -> None:
        if isinstance(model, EngineConfig):
            if settings:
                raise ConfigError(
                    f"{', '.join(sorted(settings))}: put settings into the EngineConfig"
                )
            self.engine = Engine(model)
        else:
            self.engine = Engine(EngineConfig(model=model, **settings))
        self._named = 0
        # What steps have given to the streams that are open, whoever of them made the step.
        self._streams: dict[str, deque[TokenOutput | RequestOutput]] = {}

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer every prompt.

        Requests that were added to ``engine`` itself run along; of those that end meanwhile, the
        next step of ``engine`` delivers the outputs.

        Args:
            prompts: Texts and lists of token ids, mixed as you like.
            params: How to decode, for all prompts or one for each.

        Returns:
            One output for each prompt, in their order; a prompt that cannot be served has an
            output with ``finish_reason == "error"``.

        Raises:
            TypeError: When ``prompts`` is no list, such as one text, or ``params`` neither
                settings nor a list.
            ValueError: When there are not as many ``params`` as prompts.
        """
        if not is_sequence(prompts):
            hint = ": wrap the text in one, [text]" if isinstance(prompts, str) else ""
            raise TypeError(f"prompts must be a list of prompts, not {shown(prompts)}{hint}")
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if not is_sequence(params):
            raise TypeError(f"params must be SamplingParams or a list of them, not {shown(params)}")
        if len(params) != len(prompts):
            raise ValueError(f"{len(params)} params for {len(prompts)} prompts: give one for each")

        ids = [self._new_id("generate") for _ in prompts]
        outputs: dict[str, RequestOutput] = {}
        others: list[RequestOutput] = []
        try:
            for request_id, prompt, wanted in zip(ids, prompts, params, strict=True):
                self.engine.add_request(request_id, prompt, wanted)
            missing = set(ids)
            while missing:
                for output in self._step():
                    if output.request_id in missing:
                        missing.remove(output.request_id)
                        outputs[output.request_id] = output
                    else:
                        others.append(output)
        finally:
            for request_id in ids:  # of interest only if a step raised: leave nothing behind
                self.engine.abort(request_id)
            self.engine.hand_back(others)
        return [outputs[request_id] for request_id in ids]

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None
    ) -> Generator[StreamOutput, None, None]:
        """Answer one prompt, token by token.

        The texts of all pieces, joined, are the text of the output. A piece never holds half a
        character, and never what may yet become a stop string.

        Several streams, and calls of ``generate`` between their pieces, can be under way at a
        time: all of them run in the same batch. Closing a stream aborts its request. ``engine``
        itself must not be stepped meanwhile, for whoever steps it gets the tokens.

        Args:
            prompt: A text or a list of token ids.
            params: How to decode.

        Yields:
            A piece for each token; the last one has the whole output, which says why it ended. A
            prompt that cannot be served has one piece, with an output in error.

        Raises:
            RuntimeError: When somebody else has stepped the engine and taken the output.
        """
        request_id = self._new_id("stream")
        params = SamplingParams() if params is None else params
        # Anything but False is a wish for text, or a fault for the engine to refuse.
        if self.engine.tokenizer is not None and getattr(params, "detokenize", None) is False:
            params = dataclasses.replace(params, detokenize=True)
        box = self._streams[request_id] = deque()
        told = 0
        try:
            self.engine.add_request(request_id, prompt, params)
            output = None
            while output is None:
                while not box:
                    if not self.engine.knows(request_id):
                        raise RuntimeError(f"another step took the output of {request_id!r}")
                    self.engine.hand_back(self._step())
                first = box.popleft()
                token = first if isinstance(first, TokenOutput) else None
                last = box.popleft() if box and isinstance(box[0], RequestOutput) else first
                output = last if isinstance(last, RequestOutput) else None
                text = token.text if token is not None else None
                if output is not None and output.text is not None:
                    text = output.text[told:]
                told += len(text or "")
                yield StreamOutput(
                    text=text,
                    token_ids=() if token is None else (token.token_id,),
                    logprobs=None if token is None else token.logprobs,
                    output=output,
                )
        finally:
            del self._streams[request_id]
            self.engine.abort(request_id)
            self.engine.collect(request_id)

    def _new_id(self, kind: str) -> str:
        """A name that no request has, not even one that the caller added to the engine."""
        while self.engine.knows(name := f"{kind}-{self._named}"):
            self._named += 1
        self._named += 1
        return name

    def _step(self) -> list[RequestOutput]:
        """Step the engine, give the open streams what is theirs, and return the other outputs."""
        step = self.engine.step()
        for token in step.tokens:
            if token.request_id in self._streams:
                self._streams[token.request_id].append(token)
        others = []
        for output in step.outputs:
            if output.request_id in self._streams:
                self._streams[output.request_id].append(output)
            else:
                others.append(output)
        return others
