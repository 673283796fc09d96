"""The compiled path: a whole step of a Llama model on CPU in one call, in small C++.

``compile`` makes a library for each instruction set, ``library`` loads the right one, ``panels``
packs weights the way the kernels read them, and ``backend`` runs steps with them. The C++ sources,
from the inside out: ``vectors.h`` (registers), ``tile.h`` (the one inner loop),
``panel_linear`` (products with weights), ``paged_attention`` (the cache, and looking at it),
``row_norm.h``, and ``step`` (all layers, and the interface to Python).

Nothing here is required: without a compiler, or on another processor, the engine runs on torch
(``torch_backend``), which is also what the kernels are tested against.
"""
