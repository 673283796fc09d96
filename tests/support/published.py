"""A published site to look at: the clone it is built in, the server, the watched browser page."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

REPOSITORY = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--no-first-run",
]  # fmt: skip


SHIFTS = """globalThis.nsShift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput) globalThis.nsShift += entry.value;
  }
}).observe({ type: "layout-shift", buffered: true });"""
LOADED = """() => performance.getEntriesByType("resource").map((r) => r.decodedBodySize)"""


class Watched:
    """A page with everything that went wrong in it."""

    def __init__(self, page: Page, host: str) -> None:
        self.page = page
        page.add_init_script(SHIFTS)
        self.faults: list[str] = []
        page.on("console", lambda m: m.type == "error" and self.faults.append(f"console: {m.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"pageerror: {error}"))
        # A request that a navigation cuts short is no fault of the site.
        page.on(
            "requestfailed",
            lambda r: (
                r.failure == "net::ERR_ABORTED"
                or self.faults.append(f"failed: {r.url}: {r.failure}")
            ),
        )
        page.on("response", lambda r: r.status >= 400 and self.faults.append(f"{r.status} {r.url}"))
        page.on(
            "request",
            lambda r: (
                r.url.startswith((host, "data:", "blob:")) or self.faults.append(f"left: {r.url}")
            ),
        )

    def open(self, url: str) -> Page:
        self.page.goto(url, wait_until="networkidle")
        return self.page

    @property
    def shift(self) -> float:
        """How far what was already drawn has moved since: the cumulative layout shift."""
        return float(self.page.evaluate("nsShift"))

    @property
    def loaded(self) -> list[int]:
        """Bytes, before compression, of everything that the page asked for so far."""
        return list(self.page.evaluate(LOADED))


def site_root(tmp: Path) -> Path:
    """A clone in which versions can be published: the hand-written site, and nothing generated."""
    root = tmp / "clone"
    shutil.copytree(REPOSITORY / "docs", root / "docs", ignore=shutil.ignore_patterns("results"))
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    sources = ("engine/nanoserve", "bench/nanoserve_bench")  # of the tour and of the API
    for folder in ("report/nanoserve_report/theme", "report/hooks", *sources):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=unwanted)
    shutil.copy(REPOSITORY / "engine/tour.toml", root / "engine")
    shutil.copy(REPOSITORY / "mkdocs.yml", root)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    return root


def report(root: Path, *arguments: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        [sys.executable, "-m", "nanoserve_report", *arguments],
        cwd=root, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder while it is served on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
