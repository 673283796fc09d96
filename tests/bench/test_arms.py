"""Arms as they are written, and what two of them are to each other."""

from __future__ import annotations

import pytest

from nanoserve_bench.arms import ArmChoice, parse_arm, refuse_unknown_options
from nanoserve_bench.errors import PlanError
from nanoserve_bench.plan import Option


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("nanoserve", ArmChoice(name="nanoserve", system="nanoserve")),
        ("a=nanoserve", ArmChoice(name="a", system="nanoserve")),
        (
            "nanoserve@v0.1~2",
            ArmChoice(name="nanoserve@v0.1~2", system="nanoserve", revision="v0.1~2"),
        ),
        ("a=nanoserve@x/y", ArmChoice(name="a", system="nanoserve", revision="x/y")),
        (
            "s=openai,url=http://h:1/v1?a=b,cache=off",
            ArmChoice(
                name="s",
                system="openai",
                options=(
                    Option(name="url", value="http://h:1/v1?a=b"),
                    Option(name="cache", value="off"),
                ),
            ),
        ),
    ],
)
def test_the_parts_of_an_arm(text: str, arm: ArmChoice) -> None:
    assert parse_arm(text) == arm


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"write \[NAME=\]SYSTEM\[@REVISION\]"),
        ("=nanoserve", "write"),
        ("a=", "write"),
        ("nanoserve@", "write"),
        ("@main", "write"),
        ("nanoserve@feature/x", "give it another one, such as mine=nanoserve@feature/x"),
        ("+b=nanoserve", "its name would be run as a formula"),
        ("a=openai,url", "'url' is not KEY=VALUE"),
        ("a=openai,url=", "'url=' is not KEY=VALUE"),
        ("a=openai,,x=1", "'' is not KEY=VALUE"),
        ("a=openai,x=1,x=2", "x is given twice"),
    ],
)
def test_what_is_no_arm_says_why(text: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        parse_arm(text)


def test_arms_that_run_the_same_are_known_under_any_name_and_in_any_order() -> None:
    assert parse_arm("a=s,x=1,y=2").runs == parse_arm("b=s,y=2,x=1").runs
    assert parse_arm("a=s,x=1").runs != parse_arm("a=s,x=2").runs
    assert parse_arm("a=s@r").runs != parse_arm("a=s").runs


def test_options_are_known_by_name_or_by_family() -> None:
    known = {"url": "where", "body.*": "sent as it is"}
    refuse_unknown_options(parse_arm("s,url=1,body.top_k=1"), known)
    for text in ("s,body=1", "s,head.x=1", "s,urls=1"):
        with pytest.raises(PlanError, match=r"has no option .*; there are: url, body\.\*"):
            refuse_unknown_options(parse_arm(text), known)
