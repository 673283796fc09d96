"""The versions of a published site, for feed readers (Atom, RFC 4287) and for programs that read.

Both are functions of what was published and of nothing else: a version is dated by the newest of
its measurements, which stands in its `results/verdict.json`, never by a clock.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nanoserve_report.site import Site

FEED, LLMS = "feed.xml", "llms.txt"
ATOM = "http://www.w3.org/2005/Atom"
NEVER = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """A published version.

    Attributes:
        name: Its folder.
        aliases: Other names for it.
        verdict: What the gate said of its results folders.
        newest: When the newest of them was planned (ISO); empty where none can be read.
    """

    name: str
    aliases: tuple[str, ...]
    verdict: str
    newest: str

    @property
    def title(self) -> str:
        """`0.2 (latest)`."""
        return f"{self.name} ({', '.join(self.aliases)})" if self.aliases else self.name

    @property
    def updated(self) -> str:
        """The time of its newest measurement, as Atom wants it."""
        try:
            when = datetime.fromisoformat(self.newest)
        except ValueError:  # no folder could be read
            return NEVER
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def atom(site: Site, versions: Sequence[Version]) -> bytes:
    """The feed; versions newest first, as they stand in the selector."""
    feed = ET.Element("feed", xmlns=ATOM)
    _text(feed, "title", f"{site.name}: published versions")
    _text(feed, "id", f"{site.url}{FEED}")
    _text(feed, "updated", max((version.updated for version in versions), default=NEVER))
    ET.SubElement(feed, "link", rel="self", type="application/atom+xml", href=f"{site.url}{FEED}")
    ET.SubElement(feed, "link", rel="alternate", type="text/html", href=site.url)
    _text(ET.SubElement(feed, "author"), "name", site.name)
    for version in versions:
        entry = ET.SubElement(feed, "entry")
        address = f"{site.url}{version.name}/"
        _text(entry, "title", f"{site.name} {version.title}")
        _text(entry, "id", address)
        _text(entry, "updated", version.updated)
        ET.SubElement(entry, "link", rel="alternate", type="text/html", href=address)
        _text(entry, "summary", f"Results folders: {version.verdict}.")
    ET.indent(feed)
    document: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _text(parent: ET.Element, tag: str, value: str) -> None:
    ET.SubElement(parent, tag).text = value


def llms(site: Site, versions: Sequence[Version]) -> bytes:
    """`llms.txt` of the root: every version with its own list."""
    lines = [f"# {site.name}", ""]
    if site.description:
        lines += [f"> {site.description}", ""]
    lines += [
        "Each version stays as it was published, with a list of its pages and raw rows.",
        "",
        "## Versions",
        "",
    ]
    lines += [
        f"- [{version.title}]({version.name}/{LLMS}): results folders: {version.verdict}"
        for version in versions
    ]
    return ("\n".join(lines) + "\n").encode()
