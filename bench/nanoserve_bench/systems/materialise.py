"""Run as a process of its own by `models.materialise`: bring a model into one common form.

`python -m nanoserve_bench.systems.materialise KIND ARGUMENT TARGET` writes `config.json`, float32
safetensors and the tokenizer into TARGET, and prints the folder that holds the model.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, PretrainedConfig

from nanoserve.errors import ModelError
from nanoserve.models.hf_config import as_hf_config
from nanoserve.models.synthetic import SyntheticCheckpoint

_UNCLEAN = ("quantization_config", "_name_or_path", "transformers_version", "dtype", "torch_dtype")
"""What a loader leaves in a config, and a model in plain float32 must not claim."""


def from_gguf(file: Path, target: Path) -> None:
    """Dequantise a GGUF with its tokenizer.

    A model that was loaded from a GGUF refuses to be saved, even when it is dequantised, so its
    tensors and a clean config are saved instead.
    """
    # The other kinds of model do without these seconds.
    from gguf import GGUFReader  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    try:
        names = {tensor.name for tensor in GGUFReader(file).tensors}
    except (OSError, ValueError, IndexError) as error:  # it trusts every length in the file
        sys.exit(f"{file.name} is not a whole GGUF file: {error}")
    if "rope_freqs.weight" in names:
        sys.exit(
            f"{file.name} scales its rope by a table that transformers does not read, so the "
            "reference would run without it. Use the model's safetensors instead."
        )
    folder = str(file.parent)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    _save(_clean(model.config, type(model).__name__), model.state_dict(), target)
    AutoTokenizer.from_pretrained(folder, gguf_file=file.name).save_pretrained(target)


def _clean(config: PretrainedConfig, architecture: str) -> PretrainedConfig:
    fields = {key: value for key, value in config.to_dict().items() if key not in _UNCLEAN}
    # GGUF stores float32: 1e-5 comes back as 9.99999974e-06, whose shortest spelling is 1e-5.
    fields["rms_norm_eps"] = float(str(torch.tensor(fields["rms_norm_eps"]).numpy()))
    clean = type(config)(**fields)
    clean.architectures = [architecture]
    return clean


def from_synthetic(name: str, target: Path) -> None:
    """Draw a named shape with seeded random weights; it has no tokenizer."""
    checkpoint = SyntheticCheckpoint(name)
    config = AutoConfig.for_model(**as_hf_config(checkpoint.config))
    _save(config, {name: checkpoint.tensor(name) for name in checkpoint.names()}, target)


def _save(config: PretrainedConfig, tensors: dict[str, torch.Tensor], target: Path) -> None:
    if config.tie_word_embeddings:
        tensors = {name: t for name, t in tensors.items() if name != "lm_head.weight"}
    config.dtype = torch.float32
    config.save_pretrained(target)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, target / "model.safetensors", metadata={"format": "pt"})


def from_hub(repository: str) -> Path:
    """The snapshot of a hub repository, downloaded where it is not there yet."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only this kind needs it

    wanted = ["*.json", "*.safetensors", "tokenizer.model"]
    try:
        return Path(snapshot_download(repository, allow_patterns=wanted))
    except (OSError, ValueError) as error:  # the hub's own errors are of these kinds
        sys.exit(f"the hub gives no {repository}, and no copy of it is here: {error}")


def convert(kind: str, argument: str, target: Path) -> Path:
    """The folder that holds the model: the target, or the hub's own.

    Raises:
        SystemExit: There is no such model, or it cannot be converted; the code says why.
    """
    if kind == "hub":
        return from_hub(argument)
    try:
        if kind == "gguf":
            from_gguf(Path(argument), target)
        elif kind == "synthetic":
            from_synthetic(argument, target)
        else:
            sys.exit(f"unknown kind of model {kind!r}")
    except ModelError as error:
        sys.exit(str(error))
    return target


def main() -> None:
    """Convert as the arguments say."""
    kind, argument, folder = sys.argv[1:]
    print(os.fspath(convert(kind, argument, Path(folder))))  # noqa: T201


if __name__ == "__main__":
    main()
