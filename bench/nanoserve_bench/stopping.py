"""The declared stopping rule: which block comes next, from what has been run so far.

The sweep asks it between blocks, and the calibration asks it in every simulated study. What decides
is the number of blocks, which of them were disturbed, and whether the intervals are narrow enough:
never the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Blocks

DEFAULT_BLOCKS = 8
MOST_RERUNS_SHARE = 4
"""One block in so many, rounded up, may be run again because of contention."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RanBlock:
    """A block that has been run.

    Attributes:
        number: Its number in the files.
        replaces: The contended block that it ran again; None for a fresh one.
        contended: Whether something disturbed one of its measured trials.
    """

    number: int
    replaces: int | None
    contended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class NextBlock:
    """The block to run next.

    Attributes:
        number: Its number in the files, counted from 0.
        replaces: The contended block that it runs again; None for a fresh one.
        ordinal: For people: counted from 1 over fresh blocks, and kept when one is run again.
        left: Blocks that are left, this one included, if no interval gets narrow enough before.
    """

    number: int
    replaces: int | None
    ordinal: int
    left: int


def stopping_rule(least: int, most: int, target: float | None) -> Blocks:
    """The stopping rule that was asked for, with the blocks that may be run again.

    Raises:
        PlanError: It says nothing, or two things.
    """
    if not 1 <= least <= most:
        raise PlanError(f"at least {least} and at most {most} blocks: no number is both")
    if target is None and least != most:
        raise PlanError("to stop between the least and the most blocks, give a target width")
    if target is not None and least == most:
        raise PlanError(
            f"a target of {target} stops nothing between {least} and {most} blocks: give "
            "--most-blocks above --blocks, or no --target"
        )
    if target is not None and not 0 < target < 1:
        raise PlanError(f"a target half-width is a share such as 0.02, not {target}")
    return Blocks(
        least=least,
        most=most,
        target_half_width=target,
        most_reruns=-(-most // MOST_RERUNS_SHARE),
    )


def next_block(rule: Blocks, ran: Sequence[RanBlock], *, narrow_enough: bool) -> NextBlock | None:
    """What the declared stopping rule asks for; None when the sweep is done.

    First the least number of blocks. Then every contended block is run again, within the limit.
    Then further blocks, until the intervals are narrow enough or there are the most.
    """
    fresh = sorted(block.number for block in ran if block.replaces is None)
    following = NextBlock(
        number=len(ran),
        replaces=None,
        ordinal=len(fresh) + 1,
        left=rule.most - len(fresh),
    )
    if len(fresh) < rule.least:
        return following
    contended = disturbed(ran)
    if contended and len(ran) - len(fresh) < rule.most_reruns:
        replaces = {block.number: block.replaces for block in ran}
        first = contended[0]
        while (earlier := replaces[first]) is not None:
            first = earlier
        return NextBlock(
            number=len(ran),
            replaces=contended[0],
            ordinal=fresh.index(first) + 1,
            left=rule.most - len(fresh) + 1,
        )
    if len(fresh) < rule.most and not narrow_enough:
        return following
    return None


def counted(ran: Sequence[RanBlock]) -> tuple[int, ...]:
    """The blocks that figures are made of, in order: all but those that were run again."""
    replaced = {block.replaces for block in ran}
    return tuple(sorted(block.number for block in ran if block.number not in replaced))


def disturbed(ran: Sequence[RanBlock]) -> tuple[int, ...]:
    """The contended blocks among those that count: to be run again, and refused if they remain."""
    counting = set(counted(ran))
    return tuple(sorted(b.number for b in ran if b.contended and b.number in counting))
