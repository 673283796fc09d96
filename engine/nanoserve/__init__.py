"""nanoserve: a small LLM inference engine.

Paged KV cache, continuous batching, exact time stamps::

    from nanoserve import LLM, SamplingParams

    llm = LLM("smollm2-135m", max_slots=8)
    outputs = llm.generate(["The capital of France is"], SamplingParams(max_tokens=16))
    print(outputs[0].text)
"""

from nanoserve._version import __version__
from nanoserve.config import EngineConfig
from nanoserve.description import EngineDescription
from nanoserve.engine import Engine
from nanoserve.llm import LLM
from nanoserve.outputs import RequestOutput, StepOutput, StreamOutput, TokenOutput
from nanoserve.request import FinishReason, RequestTimings
from nanoserve.sampling_params import SamplingParams
from nanoserve.token_logprobs import Logprob, TokenLogprobs

__all__ = [
    "LLM",
    "Engine",
    "EngineConfig",
    "EngineDescription",
    "FinishReason",
    "Logprob",
    "RequestOutput",
    "RequestTimings",
    "SamplingParams",
    "StepOutput",
    "StreamOutput",
    "TokenLogprobs",
    "TokenOutput",
    "__version__",
]
