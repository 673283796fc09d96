"""Formulas: MathML at build time, and a broken one stops the build."""

from __future__ import annotations

import markdown
import pytest

from nanoserve_report.mathml import to_mathml


def render(text: str) -> str:
    return markdown.markdown(text, extensions=["nanoserve_report.mathml"])


def test_a_formula_in_a_line_becomes_inline_mathml() -> None:
    html = render(r"the rate $\frac{T}{W}$ of a run")
    assert "<math><mfrac><mi>T</mi><mi>W</mi></mfrac></math>" in html


def test_a_formula_of_its_own_becomes_display_mathml() -> None:
    html = render("before\n\n$$\n\\frac{T}{W}\n$$\n\nafter")
    assert 'class="ns-formula" role="group" tabindex="0"><math display="block">' in html
    assert "<p>after</p>" in html


@pytest.mark.parametrize("text", ["it costs $5 and $6", "`$x$`", "a \\$x\\$ b", "$ x $"])
def test_what_is_not_a_formula_stays_text(text: str) -> None:
    assert "<math" not in render(text)


def test_a_broken_formula_stops_the_build() -> None:
    with pytest.raises(ValueError, match="not a formula"):
        to_mathml(r"\frac{T}{")
    with pytest.raises(ValueError, match="not a formula"):
        render(r"so $\frac{T$ it is")
