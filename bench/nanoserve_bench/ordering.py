"""The order in which a block runs its cells: random, mirrored, and fixed beforehand."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from nanoserve_bench.plan import Cell

T = TypeVar("T")


def orders(cells: Sequence[Cell], blocks: int, seed: int) -> Iterator[tuple[str, ...]]:
    """The order of the cells in every block that may run.

    Blocks come in pairs, a random order and its mirror image: in every pair each cell comes
    before each other one once, and the mean place of all cells is the same, so that neither an
    order nor a drift favours a side. Cells of one device and dtype stay together, because they
    share the time in which their workers are up.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        groups.setdefault((cell.device, cell.dtype), []).append(cell.id)
    order: list[str] = []
    for block in range(blocks):
        if block % 2 == 0:
            source = random.Random(f"{seed}/order/{block}")  # noqa: S311 - nothing secret
            order = [
                cell
                for group in _shuffled(groups, source)
                for cell in _shuffled(groups[group], source)
            ]
        else:
            order = order[::-1]
        yield tuple(order)


def _shuffled(items: Iterable[T], source: random.Random) -> list[T]:
    """The same for the same seed on every Python: of all methods only `random` is promised."""
    keyed = [(source.random(), index, item) for index, item in enumerate(items)]
    return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]
