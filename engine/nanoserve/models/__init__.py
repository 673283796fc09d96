"""Architectures, and everything that turns a checkpoint into one of them.

``model_config`` reads a checkpoint's shape, ``weights`` finds and streams its tensors,
``gguf_checkpoint`` and ``synthetic`` are two of its sources, ``digest`` names what was loaded,
``llama`` is the architecture.
"""
