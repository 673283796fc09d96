"""What a rule is, and the record of what it did.

A rule carries its own documentation: a code that is never reused, a name, one sentence, why it
exists and what to do when it refuses. Run rules look at one run, pair rules at two, study rules at
the whole folder; all of them only yield what is wrong. Counting, placing and failing closed is done
here, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nanoserve_bench.records import SystemRun
from nanoserve_bench.soundness.evidence import Evidence, Pair, Trial
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.profile import Profile
from nanoserve_bench.tables import Flags

MOST_FINDINGS = 50
"""Findings of one rule that are kept for one cell or pair; the rest is counted."""


class Flaw(NamedTuple):
    """What is wrong with a run, or between two: a finding without its place in the folder."""

    message: str
    request: str | None = None
    position: int | None = None
    evidence: str = ""
    file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A rule's text. Rules of the reader are only this: the reader itself applies them.

    Attributes:
        code: Stable and never reused, such as `RUN007`.
        name: A few words joined by hyphens.
        sentence: What a sound study satisfies.
        rationale: Why it matters, and how its threshold was chosen.
        remedy: What to do about a finding.
    """

    code: str
    name: str
    sentence: str
    rationale: str
    remedy: str

    @property
    def family(self) -> str:
        """`run`, `pair`, `statistics` or `report`."""
        prefix = self.code[:-3]  # the rest are its three digits
        return {"RUN": "run", "PAIR": "pair", "STAT": "statistics", "REP": "report"}[prefix]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule(Rule):
    """A rule about one run.

    Attributes:
        check: Yields what is wrong.
        clear: Says of all trials of a study at once which ones surely have nothing wrong; the
            others are checked. None where the check is quick by itself.
        exempt: Says why the rule does not apply to a run; None where it does.
        file: Where the evidence lies, for messages.
    """

    check: Callable[[SystemRun], Iterable[Flaw]]
    clear: Callable[[Profile], Flags] | None = None
    exempt: Callable[[SystemRun], str | None] = lambda _: None
    file: str = "requests.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRule(Rule):
    """A rule about two runs, `check(baseline, candidate)`.

    Attributes:
        check: Yields what is wrong.
        about_work: Whether the rule has nothing to say where both sides surely ran the same
            requests and said the same (`Evidence.same_work`).
        file: Where the evidence lies, for messages.
    """

    check: Callable[[SystemRun, SystemRun], Iterable[Flaw]]
    about_work: bool = False
    file: str = "requests.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyRule(Rule):
    """A rule about a whole study, which reports to an `Inspection`."""

    check: Callable[[Evidence, Inspection], None]


@dataclass(kw_only=True)
class Inspection:
    """What one rule sees and refuses in one study."""

    rule: Rule
    examined: int = 0
    not_applicable: str | None = None
    findings: list[Finding] = field(default_factory=list)
    _seen: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)

    def saw(self, items: int = 1) -> None:
        """Count what was looked at."""
        self.examined += items

    def refuse(self, finding: Finding) -> None:
        """Keep a finding; beyond `MOST_FINDINGS` of one cell or pair only their number."""
        key = (finding.cell, finding.reference_cell)
        self._seen[key] += 1
        if self._seen[key] <= MOST_FINDINGS:
            self.findings.append(finding)

    def refuse_trial(self, trial: Trial, flaw: Flaw, *, file: str = "requests.csv") -> None:
        """A finding about a trial, with the line of its evidence."""
        file = flaw.file or file
        self.refuse(
            Finding(
                rule=self.rule.code,
                message=flaw.message,
                evidence=flaw.evidence,
                hint=self.rule.remedy,
                arm=trial.cell.arm,
                cell=trial.cell.id,
                block=trial.block,
                request=flaw.request,
                position=flaw.position,
                file=file,
                row=trial.line(file, flaw.request),
            )
        )

    def refuse_cell(
        self, trial: Trial | None, cell: str, arm: str, message: str, evidence: str = ""
    ) -> None:
        """A finding about a cell as a whole."""
        self.refuse(
            Finding(
                rule=self.rule.code,
                message=message,
                evidence=evidence,
                hint=self.rule.remedy,
                arm=arm,
                cell=cell,
                block=None if trial is None else trial.block,
            )
        )

    def refuse_pair(
        self, pair: Pair, flaw: Flaw, *, block: int | None, file: str | None = None
    ) -> None:
        """A finding about two cells."""
        file = flaw.file or file
        trial = pair.candidate_trials.get(block) if block is not None else None
        self.refuse(
            Finding(
                rule=self.rule.code,
                message=flaw.message,
                evidence=flaw.evidence,
                hint=self.rule.remedy,
                arm=pair.candidate.arm,
                cell=pair.candidate.id,
                reference_cell=pair.baseline.id,
                block=block,
                request=flaw.request,
                position=flaw.position,
                file=file,
                row=None if trial is None or file is None else trial.line(file, flaw.request),
            )
        )

    def refuse_study(
        self,
        message: str,
        *,
        evidence: str = "",
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        """A finding about everything."""
        self.refuse(
            Finding(
                rule=self.rule.code,
                message=message,
                evidence=evidence,
                hint=self.rule.remedy,
                file=file,
                row=row,
                column=column,
            )
        )

    def close(self) -> None:
        """Say how many findings were not kept, and refuse a rule that looked at nothing."""
        for (cell, reference), count in self._seen.items():
            if count > MOST_FINDINGS:
                self.findings.append(
                    Finding(
                        rule=self.rule.code,
                        message=f"{count - MOST_FINDINGS} more findings like these",
                        cell=cell,
                        reference_cell=reference,
                    )
                )
        if not self.examined and self.not_applicable is None and not self.findings:
            self.refuse_study("the rule examined nothing, and nothing proves nothing")
