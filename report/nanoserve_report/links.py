"""Links between pages, as the browser will see them, each remembered so that it can be checked.

mkdocs turns `a/b.md` into `a/b/index.html`; a link inside an HTML table is not rewritten by it, so
it is written here in its final, relative form.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link that was written: from a page, to a page or a file, perhaps to an anchor."""

    page: str
    target: str
    anchor: str


def url_of(path: str) -> str:
    """The address of a page or file relative to the site's root."""
    if not path.endswith(".md"):
        return path
    stem = path.removesuffix(".md")
    if posixpath.basename(stem) == "index":
        return f"{posixpath.dirname(stem)}/".lstrip("/")
    return f"{stem}/"


@dataclass(frozen=True, kw_only=True)
class Linker:
    """Writes the links of one page."""

    page: str
    written: list[Link] = field(default_factory=list)

    def to(self, target: str, anchor: str = "") -> str:
        """The relative address of another page (`.md`) or file, both named from `docs/`."""
        self.written.append(Link(page=self.page, target=target, anchor=anchor))
        here, there = url_of(self.page) or ".", url_of(target) or "."
        relative = posixpath.relpath(there, here)
        slash = "/" if there.endswith("/") or there == "." else ""
        return f"{relative}{slash}{f'#{anchor}' if anchor else ''}"
