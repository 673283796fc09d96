"""A results folder as one file to download: unpacked, it is judged like the folder it came from."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of everything in it, the first that the format knows."""
UNIX, MODE, LEVEL = 3, 0o100644, 6


def packed(name: str, files: Mapping[str, bytes]) -> bytes:
    """A zip with one folder.

    Args:
        name: Of the folder in it.
        files: What lies in the folder, by name, in the order in which it is packed.

    Returns:
        The same bytes for the same files, whenever, wherever and by whom they are packed.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(f"{name}/{file}", date_time=EPOCH)
            entry.create_system, entry.external_attr = UNIX, MODE << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, LEVEL)
    return buffer.getvalue()
