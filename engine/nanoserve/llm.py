"""The offline door: prompts in, outputs out, in the order they were given."""

from collections.abc import Sequence
from typing import Any

from nanoserve.admission import Prompt
from nanoserve.config import EngineConfig
from nanoserve.engine import Engine
from nanoserve.errors import ConfigError
from nanoserve.outputs import RequestOutput
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
        self._generated = 0

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
            TypeError: When ``prompts`` is one text instead of a list.
            ValueError: When there are not as many ``params`` as prompts.
        """
        if isinstance(prompts, str):
            raise TypeError("prompts must be a list of prompts: wrap the text in one, [text]")
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise ValueError(f"{len(params)} params for {len(prompts)} prompts: give one for each")

        ids = [f"generate-{self._generated + index}" for index in range(len(prompts))]
        self._generated += len(prompts)
        outputs: dict[str, RequestOutput] = {}
        others: list[RequestOutput] = []
        try:
            for request_id, prompt, wanted in zip(ids, prompts, params, strict=True):
                self.engine.add_request(request_id, prompt, wanted)
            missing = set(ids)
            while missing:
                for output in self.engine.step().outputs:
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
