"""Formulas as MathML, made when the site is built: no script, no font, no request.

`to_mathml` turns LaTeX into a `<math>` element; the Markdown extension applies it to `$...$`
inside a line and to a paragraph that is `$$...$$`, so that hand-written pages and generated ones
write formulas the same way. In `mkdocs.yml`::

    markdown_extensions:
      - nanoserve_report.mathml
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from math_core import LatexError, LatexToMathML

_INLINE = r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])"
_BLOCK = re.compile(r"\A\s*\$\$(.+?)\$\$\s*\Z", re.DOTALL)


def to_mathml(tex: str, *, display: bool = False) -> str:
    """The LaTeX formula as a `<math>` element.

    Raises:
        ValueError: The formula is not LaTeX that can be converted; the message quotes it, and the
            build stops rather than publish a broken formula.
    """
    try:
        return LatexToMathML().convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        raise ValueError(f"not a formula: {tex!r}: {error}") from error


class _InlineMath(InlineProcessor):
    def handleMatch(  # type: ignore[override]  # noqa: N802 - the library's name
        self,
        m: re.Match[str],
        data: str,  # noqa: ARG002 - the library's signature
    ) -> tuple[str, int, int]:
        assert self.md is not None  # noqa: S101 - set by the library on registration
        return self.md.htmlStash.store(to_mathml(m.group(1))), m.start(0), m.end(0)


class _BlockMath(BlockProcessor):
    def test(self, parent: ET.Element, block: str) -> bool:  # noqa: ARG002 - likewise
        return _BLOCK.match(block) is not None

    def run(self, parent: ET.Element, blocks: list[str]) -> None:
        match = _BLOCK.match(blocks.pop(0))
        if match is None:
            return
        html = to_mathml(match.group(1).strip(), display=True)
        # A wide formula scrolls in its box, so the box can be reached by keys and has a name.
        reached = {"role": "group", "tabindex": "0", "aria-label": "Formula"}
        box = ET.SubElement(parent, "div", {"class": "ns-formula", **reached})
        box.text = self.parser.md.htmlStash.store(html)


class MathmlExtension(Extension):
    """`$inline$` and `$$display$$` formulas as MathML."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the library's name
        """Register both processors; before emphasis and after code, so that code keeps its `$`."""
        md.inlinePatterns.register(_InlineMath(_INLINE, md), "nanoserve-math", 185)
        md.parser.blockprocessors.register(_BlockMath(md.parser), "nanoserve-math", 175)


def makeExtension(**options: object) -> MathmlExtension:  # noqa: N802 - the library's name
    """The hook that Python-Markdown looks for."""
    return MathmlExtension(**options)
