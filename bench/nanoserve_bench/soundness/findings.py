"""A finding: one thing that is not sound, where it is, what shows it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.plan import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a rule refuses. Whatever of the place is not known stays None.

    A finding refuses as little as it can: with `reference_cell`, the comparison of the two cells;
    with `cell`, that cell and everything made of it; with `arm` alone, all cells of the arm;
    otherwise the whole study.

    Attributes:
        rule: Code of the rule.
        message: What is wrong, in one sentence, with the values.
        evidence: What shows it, such as the two token lists around a divergence.
        hint: What to do about it.
        arm: Arm that it concerns.
        cell: Cell that it concerns; the candidate of a comparison.
        reference_cell: Baseline of the comparison that it refuses.
        block: Block in which it was seen.
        request: Request in which it was seen.
        position: Position in the output, counted from 0.
        file: File of the folder that holds the evidence.
        row: Line in that file, the header being line 1.
        column: Column, or path inside a JSON document.
    """

    rule: str
    message: str
    evidence: str = ""
    hint: str = ""
    arm: str | None = None
    cell: str | None = None
    reference_cell: str | None = None
    block: int | None = None
    request: str | None = None
    position: int | None = None
    file: str | None = None
    row: int | None = None
    column: str | None = None

    @property
    def place(self) -> str:
        """Where it is, in words; `the study` where it concerns all of it."""
        parts = []
        if self.cell is not None and self.reference_cell is not None:
            parts.append(f"{self.cell} against {self.reference_cell}")
        elif self.cell is not None:
            parts.append(self.cell)
        elif self.arm is not None:
            parts.append(f"arm {self.arm}")
        for label, value in (
            ("block", self.block),
            ("request", self.request),
            ("position", self.position),
        ):
            if value is not None:
                parts.append(f"{label} {value}")
        if self.file is not None:
            line = "" if self.row is None else f":{self.row}"
            column = "" if self.column is None else f" column {self.column}"
            parts.append(f"{self.file}{line}{column}")
        return ", ".join(parts) or "the study"

    def __str__(self) -> str:
        """`RUN007 nanoserve/cpu/float32/2/day44, block 3: message`."""
        return f"{self.rule} {self.place}: {self.message}"

    def refuses_cell(self, cell: Cell) -> bool:
        """Whether no figure of this cell may be printed."""
        if self.reference_cell is not None:
            return False
        if self.cell is not None:
            return self.cell == cell.id
        return self.arm is None or self.arm == cell.arm

    def refuses_pair(self, baseline: Cell, candidate: Cell) -> bool:
        """Whether no ratio of these two cells may be printed."""
        if self.reference_cell is not None:
            return (self.reference_cell, self.cell) == (baseline.id, candidate.id)
        return self.refuses_cell(baseline) or self.refuses_cell(candidate)
