"""`nanoserve-bench rules` and `explain`: what the gate checks, from the rules themselves."""

from __future__ import annotations

import difflib
import textwrap

import click

from nanoserve_bench.soundness.catalogue import RULES, rule_of


@click.command()
def rules() -> None:
    """List every rule: its code, its name, and what a sound study satisfies."""
    for rule in RULES:
        click.echo(f"{rule.code:8} {rule.name:32} {rule.sentence}")


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain the rule with this CODE: why it exists, and what to do when it refuses."""
    rule = rule_of(code)
    if rule is None:
        raise click.BadParameter(f"no rule is called {code!r}; {_instead(code)}")
    click.echo(f"{rule.code} {rule.name} ({rule.family})\n")
    for title, text in (
        ("A sound study", rule.sentence),
        ("Why", rule.rationale),
        ("What to do", rule.remedy),
    ):
        click.echo(title)
        click.echo(textwrap.fill(text, 88, initial_indent="  ", subsequent_indent="  ") + "\n")


def _instead(code: str) -> str:
    """The code that this one is close to, or where all of them are."""
    near = difflib.get_close_matches(code.upper(), [rule.code for rule in RULES], n=1, cutoff=0.7)
    if not near:
        return "`nanoserve-bench rules` lists them"
    return f"did you mean {near[0]}?"
