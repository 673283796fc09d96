"""Verdicts as text: for people, and in the formats that other tools read."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from nanoserve_bench.soundness.catalogue import RULES, rule_of
from nanoserve_bench.soundness.findings import Finding
from nanoserve_bench.soundness.verdict import SoundCell, SoundComparison, SoundMarginal, Verdict
from nanoserve_bench.statistics import Estimate

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(verdicts: Sequence[Verdict]) -> str:
    """For people: what was refused by rule, what was examined, and what may be said."""
    return "\n\n".join("\n".join(_text_lines(verdict)) for verdict in verdicts)


def _text_lines(verdict: Verdict) -> Iterator[str]:
    red = verdict.unacknowledged
    yield f"{verdict.path}: {'sound' if verdict.ok else f'REFUSED, {len(red)} finding(s)'}"
    for code in dict.fromkeys(finding.rule for finding in red):
        yield from _text_rule(code, [finding for finding in red if finding.rule == code])
    for entry in verdict.acknowledged:
        yield (
            f"\n  acknowledged {entry.refusal.rule} at {entry.refusal.cell}: "
            f"{entry.refusal.reason} ({len(entry.findings)} finding(s))"
        )
    yield ""
    yield from _text_ratios(verdict)
    applied = [outcome for outcome in verdict.outcomes if outcome.not_applicable is None]
    yield (
        f"  {len(applied)} rules examined {sum(outcome.examined for outcome in applied)} items; "
        f"{len(verdict.findings)} finding(s), {len(verdict.findings) - len(red)} acknowledged"
    )
    for outcome in verdict.outcomes:
        if outcome.not_applicable is not None:
            yield f"  {outcome.code} does not apply: {outcome.not_applicable}"


def _text_rule(code: str, findings: Sequence[Finding]) -> Iterator[str]:
    rule = rule_of(code)
    yield f"\n  {code}" if rule is None else f"\n  {code} {rule.name}: {rule.sentence}"
    for finding in findings:
        yield f"    {finding.place}: {finding.message}"
        if finding.evidence:
            yield f"      {finding.evidence}"
    for hint in dict.fromkeys(finding.hint for finding in findings if finding.hint):
        yield f"    -> {hint}"


def _text_ratios(verdict: Verdict) -> Iterator[str]:
    for pair in verdict.comparisons:
        name = f"{pair.candidate.id} against {pair.baseline.id}"
        if isinstance(pair, SoundComparison):
            yield f"  {name}: {_interval(pair.speedup)}, {pair.verdict}"
        else:
            yield f"  {name}: refused by {_codes(pair.findings)}"
    for doubling in verdict.marginals:
        name = f"{doubling.upper.arm}, {doubling.lower.slots} to {doubling.upper.slots} slots"
        if isinstance(doubling, SoundMarginal):
            yield f"  {name}: {_interval(doubling.product)}, {doubling.verdict}"
        else:
            yield f"  {name}: refused by {_codes(doubling.findings)}"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.point:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def _codes(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.rule for finding in findings))


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Everything: findings, outcomes of the rules, estimates of what is sound."""
    folders = [_json_folder(verdict) for verdict in verdicts]
    document = {"ok": all(verdict.ok for verdict in verdicts), "folders": folders}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _json_folder(verdict: Verdict) -> dict[str, Any]:
    expected = {id(finding) for entry in verdict.acknowledged for finding in entry.findings}
    return {
        "path": str(verdict.path),
        "run_id": verdict.run_id,
        "ok": verdict.ok,
        "findings": [
            {**dataclasses.asdict(finding), "acknowledged": id(finding) in expected}
            for finding in verdict.findings
        ],
        "rules": [
            {
                "code": outcome.code,
                "name": outcome.name,
                "examined": outcome.examined,
                "not_applicable": outcome.not_applicable,
                "findings": len(outcome.findings),
            }
            for outcome in verdict.outcomes
        ],
        "cells": [
            {"cell": cell.cell.id, **_json_figures(cell, isinstance(cell, SoundCell))}
            for cell in verdict.cells.values()
        ],
        "comparisons": [
            {
                "baseline": pair.baseline.id,
                "candidate": pair.candidate.id,
                "kind": pair.planned.kind,
                **_json_figures(pair, isinstance(pair, SoundComparison)),
            }
            for pair in verdict.comparisons
        ],
        "marginals": [
            {
                "lower": doubling.lower.id,
                "upper": doubling.upper.id,
                **_json_figures(doubling, isinstance(doubling, SoundMarginal)),
            }
            for doubling in verdict.marginals
        ],
    }


def _json_figures(item: Any, sound: bool) -> dict[str, Any]:  # noqa: FBT001 - said at the call
    if not sound:
        return {"sound": False, "refused_by": list(dict.fromkeys(f.rule for f in item.findings))}
    figures: dict[str, Any] = {"sound": True}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Estimate):
            figures[field.name] = dataclasses.asdict(value)
        elif field.name == "verdict":
            figures[field.name] = str(value)
    return figures


def as_github(verdicts: Sequence[Verdict]) -> str:
    """Workflow commands, which GitHub shows beside the files of a pull request."""
    lines = []
    for verdict in verdicts:
        red = {id(finding) for finding in verdict.unacknowledged}
        for finding in verdict.findings:
            rule = rule_of(finding.rule)
            title = finding.rule if rule is None else f"{finding.rule} {rule.name}"
            place = [f"file={_property(str(verdict.path / (finding.file or '')))}"]
            if finding.row is not None:
                place.append(f"line={finding.row}")
            level = "error" if id(finding) in red else "notice"
            body = "\n".join(
                part for part in (str(finding), finding.evidence, finding.hint) if part
            )
            lines.append(
                f"::{level} {','.join(place)},title={_property(title)}::{_command_data(body)}"
            )
    return "\n".join(lines)


def _command_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _command_data(text).replace(":", "%3A").replace(",", "%2C")


def as_junit(verdicts: Sequence[Verdict]) -> str:
    """One suite per folder and one case per rule."""
    root = ET.Element("testsuites", name="nanoserve-bench check")
    for verdict in verdicts:
        red = {id(finding) for finding in verdict.unacknowledged}
        suite = ET.SubElement(root, "testsuite", name=_xml(str(verdict.path)))
        failures = skipped = 0
        for outcome in verdict.outcomes:
            case = ET.SubElement(
                suite, "testcase", classname=_xml(str(verdict.path)),
                name=f"{outcome.code} {outcome.name}",
            )  # fmt: skip
            found = [finding for finding in outcome.findings if id(finding) in red]
            if found:
                failures += 1
                failure = ET.SubElement(case, "failure", message=f"{len(found)} finding(s)")
                failure.text = _xml(
                    "\n".join(f"{finding.place}: {finding.message}" for finding in found)
                )
            elif outcome.not_applicable is not None:
                skipped += 1
                ET.SubElement(case, "skipped", message=_xml(outcome.not_applicable))
        for key, value in (
            ("tests", len(verdict.outcomes)), ("failures", failures), ("skipped", skipped),
        ):  # fmt: skip
            suite.set(key, str(value))
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def as_sarif(verdicts: Sequence[Verdict]) -> str:
    """SARIF 2.1.0; acknowledged refusals are suppressed results."""
    results = []
    for verdict in verdicts:
        red = {id(finding) for finding in verdict.unacknowledged}
        for finding in verdict.findings:
            uri = (verdict.path / (finding.file or "")).as_posix()
            location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
            if finding.row is not None:
                location["region"] = {"startLine": finding.row}
            result: dict[str, Any] = {
                "ruleId": finding.rule,
                "level": "error",
                "message": {"text": f"{finding.place}: {finding.message}"},
                "locations": [{"physicalLocation": location}],
            }
            if id(finding) not in red:
                result["suppressions"] = [{"kind": "external"}]
            results.append(result)
    driver = {
        "name": "nanoserve-bench",
        "rules": [
            {
                "id": rule.code,
                "name": rule.name,
                "shortDescription": {"text": rule.sentence},
                "fullDescription": {"text": rule.rationale},
                "help": {"text": rule.remedy},
            }
            for rule in RULES
        ],
    }
    document = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)
