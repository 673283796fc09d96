"""All architectures, by the name that checkpoints give themselves."""

from nanoserve.models.architecture import Architecture
from nanoserve.models.llama import LLAMA
from nanoserve.models.mistral import MISTRAL
from nanoserve.models.qwen2 import QWEN2
from nanoserve.models.qwen3 import QWEN3

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture for architecture in (LLAMA, MISTRAL, QWEN2, QWEN3)
}
