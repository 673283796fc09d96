"""Steps through the compiled kernels.

All memory of a step belongs to this object and is made before the first one: the weights in
panels, once; the KV pool; a workspace; the logits. Tokens go to the kernels as one flat list that
says of each which sequence it belongs to and where in it. A step with more tokens than the
workspace holds is several calls; since every token reads its past from the pool, a prompt can be
cut anywhere, and its logits have the same bits however it is.
"""

import ctypes
import math
from array import array
from collections.abc import Iterable, Sequence

import torch

from nanoserve.errors import IntegrityError
from nanoserve.kernels.library import KernelLibrary, KernelsUnavailable, Layer, Matrix, Model, Step
from nanoserve.kernels.panels import PackedMatrix, WeightMemory, huge_floats
from nanoserve.models.digest import EMBEDDING, HEAD
from nanoserve.models.model_config import ModelConfig
from nanoserve.models.parameters import FINAL_NORM, KEY_NORM, QKV, QUERY_NORM, by_layer
from nanoserve.models.rope import rope_table
from nanoserve.scheduler import ScheduledRow, SchedulerOutput

# Enough rows to make reading the weights once for all of them cheap; the workspace grows with it.
_TOKENS_PER_CALL = 512
_CACHE_LINE = 16  # floats
_NO_BLOCK = -1
_FAULTS = {1: "token id", 2: "position", 3: "sequence", 4: "block", 5: "wanted token"}
_CPU = torch.device("cpu")
_DTYPE = torch.float32  # of everything the kernels read or write


class CompiledBackend:
    """A model in the kernels' hands.

    Args:
        config: The model's shape.
        kernels: The loaded library.
        max_positions: Positions the rotary table is made for.

    Raises:
        KernelsUnavailable: When the kernels do not compute models of this shape.
    """

    def __init__(self, config: ModelConfig, kernels: KernelLibrary, *, max_positions: int) -> None:
        if config.head_dim % kernels.lanes:
            raise KernelsUnavailable(
                f"head_dim must be a multiple of {kernels.lanes}, and is {config.head_dim}"
            )
        name = kernels.instruction_set.name
        self.kernel_path = f"cpp:{name} panels"
        self.attention_path = f"cpp:{name} through block tables"
        self._config = config
        self._kernels = kernels
        self._memory = WeightMemory()
        self._packed: list[PackedMatrix] = []
        self._rope = rope_table(
            config.rope,
            config.head_dim,
            positions=max_positions,
            device=_CPU,
            dtype=_DTYPE,
        )
        # A window as wide as the sequence may be long hides nothing.
        self._windows = [window or max_positions for window in config.hiding_windows(max_positions)]
        self._layers = (Layer * config.num_layers)()
        self._model = Model(
            num_layers=config.num_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            vocab=config.vocab_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm_eps=config.rms_norm_eps,
            layers=ctypes.cast(self._layers, ctypes.POINTER(Layer)),
            cosines=self._rope[0].data_ptr(),
            sines=self._rope[1].data_ptr(),
            positions=max_positions,
        )
        self._pool: tuple[torch.Tensor, torch.Tensor]
        self._workspace = _floats(0)
        self._logits = self._new_logits(0)

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Pack the weights, a layer at a time."""
        for index, weights in by_layer(tensors):
            if index is None:
                self._load_rest(weights)
            else:
                self._layers[index] = self._layer(index, weights)

    def _load_rest(self, weights: dict[str, torch.Tensor]) -> None:
        if EMBEDDING in weights:
            self._model.embedding = self._pack(weights.pop(EMBEDDING))
            if self._config.tie_word_embeddings:
                self._model.head = self._model.embedding
        if HEAD in weights:
            self._model.head = self._pack(weights.pop(HEAD))
        if FINAL_NORM in weights:
            self._model.norm = self._vector(weights.pop(FINAL_NORM))

    def _layer(self, index: int, weights: dict[str, torch.Tensor]) -> Layer:
        def fused(kind: str) -> torch.Tensor:
            return torch.cat([weights.pop(f"{name}.{kind}") for name in QKV])

        layer = Layer(
            window=self._windows[index],
            input_norm=self._vector(weights["input_layernorm.weight"]),
            qkv=self._pack(fused("weight")),
            output=self._pack(weights.pop("self_attn.o_proj.weight")),
            post_attention_norm=self._vector(weights["post_attention_layernorm.weight"]),
            gate=self._pack(weights.pop("mlp.gate_proj.weight")),
            up=self._pack(weights.pop("mlp.up_proj.weight")),
            down=self._pack(weights.pop("mlp.down_proj.weight")),
        )
        if self._config.qkv_bias:
            layer.qkv_bias = self._vector(fused("bias"))
        if self._config.qk_norm:
            layer.query_norm = self._vector(weights[QUERY_NORM])
            layer.key_norm = self._vector(weights[KEY_NORM])
        return layer

    def _pack(self, weight: torch.Tensor) -> Matrix:
        packed = PackedMatrix(weight, width=self._kernels.panel_width, memory=self._memory)
        self._packed.append(packed)
        return packed.matrix

    def _vector(self, values: torch.Tensor) -> int:
        """Where a norm's weights or a bias lie, with zeros behind the last up to a whole panel."""
        place = self._memory.take(self._kernels.padded(len(values)))
        place[: len(values)] = values
        return place.data_ptr()

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block of the pool, all layers."""
        config = self._config
        features = config.num_layers * config.num_kv_heads * config.head_dim
        return features * (self._key_lanes(block_size) + block_size) * _DTYPE.itemsize

    def reserve(self, *, num_blocks: int, block_size: int) -> None:
        """Make the KV pool. It is never initialised: the kernels read only what was written."""
        config = self._config
        heads = (config.num_layers, num_blocks, config.num_kv_heads)
        keys_shape = (*heads, config.head_dim, self._key_lanes(block_size))
        values_shape = (*heads, block_size, config.head_dim)
        # In pages of 4 KiB each head of each block would have to be looked up.
        keys = huge_floats(math.prod(keys_shape)).view(keys_shape)
        values = huge_floats(math.prod(values_shape)).view(values_shape)
        self._pool = (keys, values)
        self._model.keys = keys.data_ptr()
        self._model.values = values.data_ptr()
        self._model.num_blocks = num_blocks
        self._model.block_size = block_size

    def _key_lanes(self, block_size: int) -> int:
        """Tokens that a block has room for in its keys, which lie in whole registers."""
        return -(-block_size // self._kernels.lanes) * self._kernels.lanes

    def run(self, plan: SchedulerOutput) -> torch.Tensor:
        """Compute a step.

        Raises:
            IntegrityError: When the plan points outside the model or the pool.
        """
        token_ids, positions, sequences = array("i"), array("i"), array("i")
        last = []
        for index, row in enumerate(plan.rows):
            stop = row.start + row.length
            token_ids.extend(row.request.token_ids[row.start : stop])
            positions.extend(range(row.start, stop))
            sequences.extend([index] * row.length)
            if row.samples:
                last.append(len(token_ids) - 1)
        tables, table_stride = _flatten_tables(plan.rows)
        logits = self._logits_of(len(last))
        threads = torch.get_num_threads()
        workspace = self._workspace_for(threads)

        done = 0
        for begin in range(0, len(token_ids), _TOKENS_PER_CALL):
            end = min(begin + _TOKENS_PER_CALL, len(token_ids))
            wanted = array("i", [token - begin for token in last[done:] if token < end])
            step = Step(
                tokens=end - begin,
                token_ids=_address(token_ids, begin),
                positions=_address(positions, begin),
                sequences=_address(sequences, begin),
                num_sequences=len(plan.rows),
                tables=_address(tables, 0),
                table_stride=table_stride,
                num_wanted=len(wanted),
                wanted=_address(wanted, 0),
                logits=logits[done:].data_ptr(),
                logits_stride=logits.stride(0),
                workspace=workspace.data_ptr(),
                num_threads=threads,
            )
            if fault := self._kernels.step(self._model, step):
                raise IntegrityError(f"a {_FAULTS[fault]} of the step lies outside the model")
            done += len(wanted)
        return logits[:, : self._config.vocab_size]

    def highest(self, logits: torch.Tensor) -> list[int | None]:
        """The greedy choice of each row, as ``sampler.highest`` makes it."""
        return self._kernels.argmax(logits)

    def _logits_of(self, rows: int) -> torch.Tensor:
        """``[rows, padded vocabulary]``, the same memory every time."""
        if rows > len(self._logits):
            self._logits = self._new_logits(rows)
        return self._logits[:rows]

    def _new_logits(self, rows: int) -> torch.Tensor:
        # A cache line more than whole panels, so that rows do not fall into the same cache sets.
        return _floats(rows, self._kernels.padded(self._config.vocab_size) + _CACHE_LINE)

    def _workspace_for(self, threads: int) -> torch.Tensor:
        size = self._kernels.workspace(self._model, tokens=_TOKENS_PER_CALL, threads=threads)
        if size > len(self._workspace):
            self._workspace = _floats(size)
        return self._workspace


def _floats(*shape: int) -> torch.Tensor:
    """Memory for the kernels, whatever torch's default dtype and device are."""
    return torch.empty(shape, device=_CPU, dtype=_DTYPE)


def _flatten_tables(rows: Sequence[ScheduledRow]) -> "tuple[array[int], int]":
    """The block tables of all rows, each filled up to the longest with a block that is none."""
    tables = [row.request.table.blocks for row in rows]
    longest = max(map(len, tables), default=0)
    flat = array("i")
    for table in tables:
        flat.extend(table)
        flat.extend([_NO_BLOCK] * (longest - len(table)))
    return flat, longest


def _address(values: "array[int]", index: int) -> int:
    return values.buffer_info()[0] + index * values.itemsize
