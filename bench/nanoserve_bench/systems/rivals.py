"""What all rivals have in common: an environment of their own, and weights that are proven.

A rival's library is no dependency of this distribution: it is imported by name, in a worker that
runs the rival's own interpreter. The weights come from the model folder that every other system
loads, float32 as it stands there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nanoserve_bench import caches
from nanoserve_bench.environment import cpu_model
from nanoserve_bench.models import cache_folder, tokenizer_digest
from nanoserve_bench.protocol import Description, Launch
from nanoserve_bench.records import Shape
from nanoserve_bench.systems import System
from nanoserve_bench.systems.environments import Environment, libraries

_LAYOUT = "1"
"""Part of every key of a converted model; raised when a converter writes something else."""


class Rival(System):
    """Somebody else's engine, on the CPU, in float32.

    Attributes:
        environment: Its environment; see `environments.py`.
        packages: Distributions whose versions are worth telling, beside its own.
        attention: How it attends, and where it keeps keys and values.
    """

    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens")
    measures_ceilings = False
    optional = True
    runs_on = (("cpu", "float32"),)
    environment: ClassVar[Environment]
    packages: ClassVar[tuple[str, ...]] = ()
    attention: ClassVar[str]

    def __init__(self, launch: Launch) -> None:
        # numpy, which the sweep does not import to plan.
        from nanoserve_bench.systems import canonical  # noqa: PLC0415

        if (launch.device, launch.dtype) not in self.runs_on:
            raise ValueError(f"{launch.system} does not run on {launch.device} in {launch.dtype}")
        self._launch = launch
        self._folder = Path(launch.model_path)
        self._cache = caches.state_of({o.name: o.value for o in launch.options})
        self._config = canonical.read_config(self._folder)
        tensors = canonical.canonical_tensors(self._folder)
        self._canonical = canonical.digest(tensors)
        # Some of these libraries keep files of their own under the home folder.
        converted = cache_folder() / "rivals"
        os.environ["HOME"] = sys.prefix
        weights, settings = self._load(converted)
        self._description = self._describe(canonical.bytes_per_step(tensors), weights, settings)

    @classmethod
    def interpreter(cls) -> str:
        """The Python of its own environment."""
        return str(cls.environment.python)

    @classmethod
    def version(cls) -> str:
        """What its environment holds."""
        return cls.environment.version_of(cls.distribution)

    @classmethod
    def problem(cls) -> str:
        """Why its environment will not do."""
        return cls.environment.problem(cls.distribution)

    def describe(self) -> Description:
        """What was loaded."""
        return self._description

    @abstractmethod
    def _load(self, converted: Path) -> tuple[str, Mapping[str, object]]:
        """Load the engine.

        Args:
            converted: Folder for models in a form of its own.

        Returns:
            What weights it runs (`sha256:<hex>` where they were read back from what it loaded,
            `declared:<what>` otherwise), and every setting that it was given.
        """

    def _prove(self, constants: Iterable[Any], form: str) -> str:
        """The digest, where every canonical tensor lies bit for bit among what was loaded."""
        from nanoserve_bench.systems import canonical  # noqa: PLC0415

        tensors = canonical.canonical_tensors(self._folder)
        missing = canonical.missing_from(tensors, constants)
        return f"declared:{form}" if missing else self._canonical

    @property
    def _heads(self) -> tuple[int, int, int]:
        """Heads, heads of keys and values, and width of a head."""
        from nanoserve_bench.systems import canonical  # noqa: PLC0415

        return canonical.heads_of(self._config)

    @property
    def _kv_bytes_per_token(self) -> int:
        """Bytes of float32 keys and values that a token leaves behind in all layers."""
        _, kv_heads, width = self._heads
        return 2 * 4 * int(self._config["num_hidden_layers"]) * kv_heads * width

    def _convert(self, converted: Path, kind: str, convert: Callable[[Path], None]) -> Path:
        """The model in another form, converted now if it is not there yet.

        Args:
            converted: Folder for converted models.
            kind: The form, with what its content depends on beside the weights.
            convert: Writes it to a path that does not exist yet.
        """
        config = (self._folder / "config.json").read_bytes()
        source = f"{_LAYOUT}\n{kind}\n{self._canonical}\n".encode() + config
        target = converted / f"{self._folder.name}-{hashlib.sha256(source).hexdigest()[:16]}"
        if not target.exists():
            converted.mkdir(parents=True, exist_ok=True)
            # Renamed into place when it is whole: a killed conversion leaves no half of a model.
            scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=converted))
            try:
                convert(scratch / "model")
                (scratch / "model").rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return target

    def _describe(
        self, weight_bytes_per_step: int, weights: str, settings: Mapping[str, object]
    ) -> Description:
        launch = self._launch
        return Description(
            version=self.version(),
            revision=None,
            shape=self.shape.value,
            stamps=self.stamps,
            device_name=cpu_model(),
            dtype=launch.dtype,
            matmul_precision="ieee",
            threads=launch.threads,
            weights=weights,
            weight_bytes_per_step=weight_bytes_per_step,
            tokenizer=tokenizer_digest(self._folder),
            attention=self.attention,
            cache=self._cache,
            decoding="greedy;ignore_eos",
            kernel_path=" ".join(f"{key}={value}" for key, value in settings.items()),
            libraries=libraries(self.distribution, *self.packages, "numpy"),
        )


def run_converter(*command: str) -> None:
    """Run a converter in a process of its own, which frees its memory.

    Raises:
        RuntimeError: It failed; the message holds the end of what it wrote.
    """
    done = subprocess.run(  # noqa: S603 - a program of the rival's own environment
        command, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the model cannot be converted:\n{done.stderr.strip()[-1500:]}")
