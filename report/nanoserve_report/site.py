"""What a site says of itself in its `mkdocs.yml`: name, description, address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mkdocs.utils.yaml import get_yaml_loader, yaml_load


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A site.

    Attributes:
        name: Its name; the folder's where the configuration has none.
        description: In a sentence; may be empty.
        url: Its address, with a slash at the end; empty where it is not known.
    """

    name: str
    description: str
    url: str


def read(root: Path) -> Site:
    """From the `mkdocs.yml` in `root`; a folder of pages without one has the folder's name."""
    path = root / "mkdocs.yml"
    said = {}
    if path.is_file():
        with path.open("rb") as file:
            said = yaml_load(file, get_yaml_loader())
    url = str(said.get("site_url") or "")
    return Site(
        name=str(said.get("site_name") or root.resolve().name),
        description=" ".join(str(said.get("site_description") or "").split()),
        url=f"{url.rstrip('/')}/" if url else "",
    )
