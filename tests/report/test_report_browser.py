"""The report in a real browser: no errors, no requests, readable in light and dark, on a phone and on paper."""

from __future__ import annotations

import importlib.util
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist as pl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
    pytest.mark.filterwarnings("ignore::plmix_dist.errors.ShrunkenWarning"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
]
SIZES = {"laptop": (1280, 800), "phone": (360, 740)}
# The contrast of every text with what lies behind it, as WCAG 2 computes it; large text needs 3, other text 4.5.
CONTRASTS = """
() => {
  const parse = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    return [red, green, blue, alpha];
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      value /= 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [red, green, blue, alpha] = parse(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return [red, green, blue];
      if (alpha > 0) throw new Error("half transparent");
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const pair = [luminance(parse(style.color).slice(0, 3)), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
    found.push([ratio / (large ? 3 : 4.5), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small report with data, one with nasty names and warnings, and one of 1,000 items and 8 components."""
    folder = tmp_path_factory.mktemp("reports")
    pl.simulate(folder / "s", n_rankings=400, n_items=7, n_components=3, random_state=1)
    small = pl.PlackettLuceMixture(3, random_state=0).fit(folder / "s")
    table = [{"n_components": 2, "bic": 3.0}, {"n_components": 3, "bic": 2.0}]
    names = ["<script>fail()</script>", '"><img src=x onerror=fail()>', "x" * 400, "שלום עולם", "\u202etea", "mate"]
    rng = np.random.default_rng(0)
    rows = [[names[item] for item in rng.permutation(6)] for _ in range(60)]
    nasty = pl.PlackettLuceMixture(5, alpha=0.1, random_state=0).fit(rows)
    nasty.converged_ = False
    many = [f"item {number}" for number in range(1000)]
    big = pl.MixtureParams.of(rng.normal(size=(8, 1000)), None, many)
    big.save(folder / "m")
    return {
        "small": small.report(folder / "small.html", folder / "s", selection=table),
        "nasty": nasty.report(folder / "nasty.html", rows, title="<script>fail()</script>"),
        "big": pl.PlackettLuceMixture.load(folder / "m").report(folder / "big.html"),
    }


def opened(browser: Any, path: Path, heard: list[str], **options: Any) -> Any:
    """The page; `heard` gets every message, error and request but that for the file itself."""
    page = browser.new_page(**options)
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: heard.append("dialog"))
    page.on("request", lambda request: None if request.url == path.as_uri() else heard.append(request.url))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("name", ["small", "nasty", "big"])
@pytest.mark.parametrize("size", SIZES)
def test_no_errors_no_requests_no_overflow(browser, reports, name, size):
    heard: list[str] = []
    width, height = SIZES[size]
    page = opened(browser, reports[name], heard, viewport={"width": width, "height": height})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [entry for entry in heard if not entry.startswith("data:")] == []
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("longest", ["cocoa", "Donaudampfschifffahrtsgesellschaftskapitän" * 2])
def test_groups__no_column_of_what_sets_them_apart_is_cut(browser, tmp_path, longest, width):
    names = ["coffee", "espresso", "lemonade", "green tea", "black tea", longest]
    worths = np.linspace(2, -2, 6)
    drinks = pl.PlackettLuceMixture.from_arrays([worths, -worths], [0.6, 0.4], names)
    page = opened(browser, drinks.report(tmp_path / "r.html"), [], viewport={"width": width, "height": 844})
    cut = (
        "[...document.querySelectorAll('.apart, #items, .heat table')]"
        ".map(t => t.scrollWidth > t.parentElement.clientWidth)"
    )
    assert page.evaluate(cut) == [False] * 4
    # Words of usual length stay whole, also where they are not alone.
    broken = "[...document.querySelectorAll('tbody bdi')].filter(t => t.getClientRects().length > 1)"
    usual = page.evaluate(f"{broken}.map(t => t.textContent).filter(name => !name.includes(' '))")
    assert set(usual) <= {longest} - {"cocoa"}
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_tables__no_column_of_items_or_criteria_is_cut(browser, tmp_path, width):
    rows = np.argsort(np.random.default_rng(0).gumbel(size=(200, 5)), axis=1)
    names = np.array(["coffee", "orange juice with pulp", "green tea", "black tea", "cocoa"], object)
    model = pl.PlackettLuceMixture(3, random_state=0, max_iter=20).fit(names[rows], client=False)
    criteria = ("bic", "bic_without_prior", "aic", "icl", "score")
    table = [{"n_components": k, **dict.fromkeys(criteria, -137556.1 / k)} for k in (1, 2, 3)]
    path = model.report(tmp_path / "r.html", names[rows], selection=table)
    page = opened(browser, path, [], viewport={"width": width, "height": 844})
    cut = (
        "[...document.querySelectorAll('#items, .chosen table')].map(t => t.scrollWidth > t.parentElement.clientWidth)"
    )
    assert page.evaluate(cut) == [False, False]
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["small", "nasty"])
def test_contrast_of_all_text(browser, reports, name, scheme):
    page = opened(browser, reports[name], [], color_scheme=scheme)
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [text for ratio, text in found if ratio < 1] == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 200) == (scheme == "dark")
    page.close()


def test_print__light_whatever_the_screen_is_and_all_rows(browser, reports):
    page = opened(browser, reports["big"], [], color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert all(ratio >= 1 for ratio, _ in page.evaluate(CONTRASTS))
    region = "document.querySelector('.tall')"
    assert page.evaluate(f"{region}.scrollHeight <= {region}.clientHeight + 1")
    page.close()
    page = opened(browser, reports["small"], [])
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


def first_cells(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "#items tbody tr", "rows => rows.filter(row => row.offsetHeight).map(row => row.cells[0].textContent)"
    )
    return found


def test_table__sorted_and_searched(browser, reports):
    page = opened(browser, reports["big"], [])
    assert len(first_cells(page)) == 1000
    page.click("#items thead th:nth-child(1) button")
    assert first_cells(page)[:3] == ["item 0", "item 1", "item 2"]
    page.click("#items thead th:nth-child(3) button")
    values = page.eval_on_selector_all("#items tbody tr", "rows => rows.map(row => +row.cells[2].textContent)")
    assert values == sorted(values, reverse=True)
    page.click("#items thead th:nth-child(3) button")
    values = page.eval_on_selector_all("#items tbody tr", "rows => rows.map(row => +row.cells[2].textContent)")
    assert values == sorted(values)
    page.fill("#search", "ITEM 99")
    assert sorted(first_cells(page)) == sorted(["item 99", *(f"item {number}" for number in range(990, 1000))])
    assert page.inner_text("#found") == "11 of 1000"
    page.close()


def test_without_script__all_is_there_and_nothing_that_does_nothing(browser, reports):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(reports["small"].as_uri())
    assert page.locator("#items tbody tr").count() == 7
    assert not page.locator("#search").is_visible()
    assert page.locator("#items thead button").count() == 0
    context.close()
