"""The what-if page in a real browser: every pair on offer, to the last printed digit."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from nanoserve_report import numbers, whatif
from nanoserve_report.study import load
from nanoserve_report.views import common
from support.published import Watched

pytestmark = pytest.mark.browser
PAGE = "0.2/results/what-if/"

EVERY_PAIR = """async () => {
  const [study, candidate, baseline] =
    ["ns-study", "ns-candidate", "ns-baseline"].map((id) => document.getElementById(id));
  const values = (select) => [...select.options].map((option) => option.value);
  const place = document.querySelector("#ns-what-if [aria-live]");
  const found = {};
  const choose = async (select, value) => {
    select.value = value;
    const drawn = new Promise((resolve) => {
      new MutationObserver((_, self) => { self.disconnect(); resolve(); })
        .observe(place, { childList: true });
    });
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn;
  };
  for (const s of values(study)) {
    await choose(study, s);
    for (const c of values(candidate)) {
      await choose(candidate, c);
      for (const b of values(baseline)) {
        await choose(baseline, b);
        const printed = { caption: place.querySelector("caption").textContent };
        for (const row of place.querySelectorAll("[data-figure]")) {
          printed[row.dataset.figure] =
            [...row.querySelectorAll("td > *")].map((span) => span.textContent);
        }
        found[[s, c, b].join(" | ")] = printed;
      }
    }
  }
  return found;
}"""


def ready(page: Page) -> Page:
    page.locator("#ns-what-if[data-ready]").wait_for()
    return page


def test_every_pair_is_split_as_the_report_splits_it(
    watched: Watched, host: str, three_sweeps: Path
) -> None:
    found = ready(watched.open(f"{host}{PAGE}")).evaluate(EVERY_PAIR)
    expected = {}
    for offer in whatif.offers(load(three_sweeps)):
        sweep, names = offer.sweep, [common.name_of(c) for c in (offer.candidate, offer.baseline)]
        cells = {cell.cell.id: cell for cell in sweep.sound_cells}
        printed: dict[str, object] = {
            "caption": f"{names[0]} over {names[1]}: {offer.verdict}",
        }
        for name, estimate in [
            ("speedup", offer.speedup),
            ("batch", offer.batch_factor),
            ("slot", offer.slot_factor),
        ]:
            assert estimate is not None
            shown = numbers.ratio(estimate)
            printed[name] = [f"{shown.point}{shown.unit}", shown.interval]
        for name, cell in [("candidate", offer.candidate), ("baseline", offer.baseline)]:
            shown = numbers.shown(cells[cell.id].throughput)
            printed[name] = [shown.point, shown.interval]
        place = ", ".join(
            (
                sweep.name,
                *(getattr(sweep.setting, n) for n in ("device", "dtype", "model", "workload")),
            )
        )
        expected[f"{place} | {offer.candidate.id} | {offer.baseline.id}"] = printed
    assert len(expected) == 3 * (5 + 3), "five comparisons and three doublings a sweep"
    assert found == expected


def test_the_script_rounds_as_the_report_does(watched: Watched, host: str) -> None:
    """An exact half goes to the even digit in Python, and up in JavaScript's own `toFixed`."""
    page = ready(watched.open(f"{host}{PAGE}"))
    for value, places in [
        (0.125, 2), (0.375, 2), (2.5, 0), (9.5, 0), (3.14159, 3), (1234567.25, 1), (999.9996, 3),
        (0.0004, 2), (1e15, 2),
    ]:  # fmt: skip
        text = page.evaluate("([v, p]) => nsWhatIf.fixed(v, p)", [value, places])
        assert text == f"{value:,.{places}f}"
    for value in (2.444, 16.36, 163.5, 9.996, 99.95, 12300.4, 0.01234):
        text = page.evaluate("(v) => nsWhatIf.fixed(v, nsWhatIf.decimals(v, 3))", value)
        assert text == numbers.significant(value)


def test_without_javascript_the_page_says_so_and_leads_to_the_numbers(
    browser: Browser, host: str
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{host}{PAGE}", wait_until="networkidle")
    assert page.get_by_text("JavaScript is off").is_visible()
    page.get_by_role("link", name="every run").click()
    assert page.url == f"{host}0.2/results/runs/"
    context.close()
