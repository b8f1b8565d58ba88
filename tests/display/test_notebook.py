"""What notebooks show: cards, and a view of a running fit that stays in its place."""

from __future__ import annotations

import importlib.util
import math
import re

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.display.marks import curve
from plmix_dist.display.notebook import History

ROWS = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 10


@pytest.fixture(scope="module")
def model() -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(2, random_state=0).fit(ROWS)


# --- cards ---------------------------------------------------------------------------------------------------------


def test_store_card(tmp_path):
    store = pl.simulate(tmp_path / "s", n_rankings=1_234, n_items=20, random_state=0)
    html = store._repr_html_()
    assert "<b>1,234</b> rankings of <b>20</b> items" in html
    assert "and 8 more" in html


def test_model_card(model):
    html = model._repr_html_()
    for share in model.shares_:
        assert f"{100 * share:.1f}\xa0%" in html
        assert f'width="{100 * share:.2f}'.rstrip("0") in html
    first = np.exp(model.log_worths_[0]) / np.exp(model.log_worths_[0]).sum()
    assert f"<bdi>tea</bdi> {100 * first[model.item_names_.index('tea')]:.0f}\xa0%" in html
    assert model._repr_mimebundle_()["text/html"] == html


@pytest.fixture(scope="module")
def selection() -> pl.MixtureSelection:
    return pl.MixtureSelection(range(1, 4), random_state=0).fit(ROWS)


def test_selection_card__the_choice_in_words_and_a_bar_per_number(selection):
    html = selection._repr_html_()
    assert selection.words_ in html
    assert f"<b>{selection.n_components_}</b>" in html
    values = [row["bic"] for row in selection.table_ if row["bic"] is not None]
    widths = [float(width) for width in re.findall(r'<rect width="([\d.]+)%" height="10" y="4" rx="2" fill=', html)]
    assert len(widths) == len(values) == html.count("<svg")
    # The longest bar is the lowest BIC, the shortest the highest, and those between lie in proportion.
    shares = [100 * (max(values) - value) / (max(values) - min(values)) for value in values]
    assert widths == pytest.approx(shares, abs=0.01)
    for value in values:
        assert f"{value:,.1f}" in html
    assert selection._repr_mimebundle_()["text/html"] == html


def test_selection_card__highest_is_best_and_reasons_are_shown():
    # Two distinct rankings: three components have no fit, and the row says why.
    found = pl.MixtureSelection(range(1, 4), criterion="held-out", n_folds=2, random_state=0).fit(ROWS)
    html = found._repr_html_()
    best = max(row["held_out"] for row in found.table_ if row["held_out"] is not None)
    line = next(line for line in html.split("<tr>") if f"{best:,.4f}" in line)
    assert 'width="100%" height="10" y="4" rx="2" fill=' in line
    reasons = [row["reason"] for row in found.table_ if row["reason"]]
    assert reasons
    assert "distinct" in html
    assert "<bdi>yes</bdi>" in html  # one component is identifiable, in words


def test_selection_card__text_is_escaped(selection, monkeypatch):
    monkeypatch.setattr(selection, "words_", "<script>alert(1)</script>")
    assert "<script" not in selection._repr_html_()


def test_posterior_card__shares_with_intervals():
    rows = [["<b>tea</b>", "mate", "milk"]] * 30 + [["milk", "mate", "<b>tea</b>"]] * 10
    model = pl.BayesianPlackettLuceMixture(2, n_warmup=100, n_draws=300, random_state=0).fit(rows)
    html = model._repr_html_()
    for share, low, high in zip(model.shares_, *model.intervals(0.95).shares, strict=True):
        assert f"{100 * share:.1f}\xa0%" in html
        assert f"{100 * low:.1f}\xa0% to {100 * high:.1f}\xa0%" in html
        assert f'cx="{100 * share:.2f}'.rstrip("0") in html
    assert f"{model.diagnostics_.largest_r_hat:.3f}" in html
    assert ("do not agree" in html) == (not model.converged_)
    assert "&lt;b&gt;tea&lt;/b&gt;" in html
    assert "<b>tea" not in html
    assert model._repr_mimebundle_()["text/html"] == html


def test_unfitted__shows_its_settings_as_scikit_learn_does():
    assert "n_components" in pl.PlackettLuceMixture(3)._repr_html_()
    assert set(pl.PlackettLuceMixture(3)._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert "n_chains" in pl.BayesianPlackettLuceMixture(3)._repr_html_()
    assert "n_folds" in pl.MixtureSelection()._repr_html_()


def test_history__is_a_list_with_a_curve(model, tmp_path):
    assert isinstance(model.history_, list)
    html = model.history_._repr_html_()
    assert f"<b>{len(model.history_)}</b> iterations" in html
    assert f"{model.history_[-1]['log_likelihood']:.4f}" in html
    model.save(tmp_path / "m")
    assert isinstance(pl.PlackettLuceMixture.load(tmp_path / "m").history_, History)
    assert History(model.history_) == list(model.history_)


def test_curve__lowest_at_the_bottom_and_gaps_left_out():
    points = re.search(r'points="([^"]+)"', curve([1.0, math.nan, 3.0, 2.0]))
    assert points is not None
    assert points[1] == "0,40 66.67,0 100,20"
    assert curve([math.inf]) == ""
    assert len(re.findall(",", curve(range(10_000)))) <= 402  # type: ignore[arg-type]


# --- the view of a running fit -------------------------------------------------------------------------------------


NOTEBOOK = [
    "import plmix_dist as pl",
    "rows = [['tea', 'mate', 'milk', 'water']] * 30 + [['water', 'milk', 'mate', 'tea']] * 10",
    "model = pl.PlackettLuceMixture(2, random_state=0, progress=True).fit(rows)",
    "model",
    "model.history_",
]


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed")
@pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="ipykernel is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_in_a_real_notebook__one_view_that_ends_with_done():
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(source) for source in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    fit, card, history = (cell["outputs"] for cell in notebook.cells[2:])
    views = [output for output in fit if output["output_type"] == "display_data"]
    assert len(views) == 1
    assert "done" in views[0]["data"]["text/html"]
    assert "log-likelihood" in views[0]["data"]["text/html"]
    assert not [output for output in fit if output.get("name") == "stderr"]
    assert "favourites" in card[0]["data"]["text/html"]
    assert "iterations" in history[0]["data"]["text/html"]
