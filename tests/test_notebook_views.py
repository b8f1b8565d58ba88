"""What notebooks show: cards, a view of a running fit that stays in its place, plots, tables with the user's ids."""

from __future__ import annotations

import importlib.util
import math
import re
from typing import Any

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.display.live import LiveProgress, notebook_show
from plmix_dist.display.marks import curve
from plmix_dist.display.notebook import History
from plmix_dist.errors import SettingsError

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
    widths = [
        float(width) for width in re.findall(r'<rect width="([\d.]+)%" height="10" y="4" rx="2" fill=', html)
    ]
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


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(iteration: int, log_likelihood: float, **more: Any) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "log_likelihood": log_likelihood,
        "rankings_per_second": 5e5,
        "taken": True,
        **more,
    }


def test_live__stage_rate_time_left_and_curve():
    shown: list[str] = []
    clock = Clock()
    live = LiveProgress(lambda one: 90.0, shown.append, clock=clock)
    live.stage({"stage": "look", "state": "begun", "weight": 10.0})
    assert "<bdi>look</bdi>" in shown[-1]
    clock.now += 3.0
    live.stage({"stage": "look", "state": "ended", "seconds": 3.0})
    live.stage({"stage": "cluster", "state": "joined", "dashboard": "http://here:8787/status"})
    live.stage({"stage": "fit", "state": "begun"})
    for number in range(1, 4):
        clock.now += 1.0
        live(record(number, -100.0 / number))
    assert "fit: iteration 3" in shown[-1]
    assert "500,000 rankings/s" in shown[-1]
    assert "about 90 s left" in shown[-1]
    assert "log-likelihood -3.333333 after 3 iterations" in shown[-1]
    assert "http://here:8787/status" in shown[-1]
    assert "3.0 s" in shown[-1]
    live(record(4, -1.0, taken=False))
    assert "after 3 iterations" in live.html()
    live.close()
    assert "done" in shown[-1]
    assert "left" not in shown[-1]


def test_live__curve_of_the_objective_which_never_falls():
    live = LiveProgress(lambda one: None, lambda html: None)
    for number, (log_likelihood, objective) in enumerate([(-5.0, -9.0), (-5.1, -8.0), (-5.2, -7.0)], start=1):
        live(record(number, log_likelihood, objective=objective))
    assert 'points="0,40 50,20 100,0"' in live.html()
    assert "log-likelihood -5.200000" in live.html()


def test_live__not_shown_more_often_than_can_be_seen():
    shown: list[str] = []
    clock = Clock()
    live = LiveProgress(lambda one: None, shown.append, clock=clock)
    for number in range(1, 101):
        clock.now += 0.01
        live(record(number, -1.0 / number))
    assert 4 <= len(shown) <= 7
    live.close()
    assert "after 100 iterations" in shown[-1]


def test_outside_of_a_notebook__text(capsys):
    assert notebook_show() is None
    pl.PlackettLuceMixture(2, random_state=0, progress=True).fit(ROWS)
    assert "rankings/s" in capsys.readouterr().err


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
    assert "<b>done</b>" in views[0]["data"]["text/html"]
    assert "polyline" in views[0]["data"]["text/html"]
    assert not [output for output in fit if output.get("name") == "stderr"]
    assert "favourites" in card[0]["data"]["text/html"]
    assert "iterations" in history[0]["data"]["text/html"]


# --- plots ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def drawn_nowhere():
    if importlib.util.find_spec("matplotlib") is None:
        yield
        return
    import matplotlib

    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_plot_worths__points_and_intervals(model):
    from plmix_dist.plots import plot_worths

    errors = model.standard_errors(ROWS)
    axes = plot_worths(model, 1, standard_errors=errors, items=["tea", "milk"])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["milk", "tea"]
    drawn = next(line for line in axes.lines if line.get_marker() == "o")
    chosen = [model.item_names_.index(name) for name in ("milk", "tea")]
    np.testing.assert_allclose(drawn.get_xdata(), model.log_worths_[1, chosen])
    segments = axes.collections[0].get_segments()
    spread = 1.959964 * errors.log_worths[1, chosen]
    np.testing.assert_allclose([one[1, 0] - one[0, 0] for one in segments], 2 * spread, rtol=1e-5)


def test_plots__draw_on_given_axes_and_return_them(model):
    from matplotlib import pyplot

    from plmix_dist import plots

    probabilities = model.predict_proba(ROWS)
    three = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    table = [{"n_components": 1, "bic": 3.0}, {"n_components": 2, "bic": 2.0}]
    block = pl.RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])
    calls = [
        (plots.plot_worths, model),
        (plots.plot_components, model),
        (plots.plot_convergence, model),
        (plots.plot_selection, table),
        (plots.plot_memberships, probabilities),
        (plots.plot_membership_map, probabilities),
        (plots.plot_membership_map, three),
        (plots.plot_comparison_graph, block),
    ]
    for function, what in calls:
        figure, axes = pyplot.subplots()
        assert function(what, ax=axes) is axes
        figure.canvas.draw()
    assert set(plots.__all__) == {function.__name__ for function, _ in calls}


def test_plot_membership_map__corners_of_the_triangle():
    from plmix_dist.plots import plot_membership_map

    points = plot_membership_map(np.eye(3)).collections[0].get_offsets()
    distances = [np.linalg.norm(points[i] - points[j]) for i, j in ((0, 1), (1, 2), (0, 2))]
    np.testing.assert_allclose(distances, 1.0)


def test_plot_comparison_graph__counts_pairs():
    from plmix_dist.plots import _pairs

    block = pl.RankingBlock.from_array([[0, 1, -1], [2, -1, -1]], n_items=4, unranked="below", weights=[2, 1])
    expected = np.zeros((4, 4))
    for weight, order in ((2, [0, 1]), (1, [2])):
        for place, item in enumerate(order):
            for other in range(4):
                if other not in order[: place + 1]:
                    expected[item, other] += weight
    np.testing.assert_array_equal(_pairs(block), expected)


def test_plots__errors(model):
    from plmix_dist import plots

    with pytest.raises(SettingsError, match="from 0 to 1, but is 2"):
        plots.plot_worths(model, 2)
    with pytest.raises(SettingsError, match="no column 'aic'; it has bic"):
        plots.plot_selection([{"n_components": 1, "bic": 1.0}], "aic")
    with pytest.raises(SettingsError, match="two components or more"):
        plots.plot_membership_map(np.ones((3, 1)))
    with pytest.raises(SettingsError, match="cannot be read"):
        plots.plot_comparison_graph(pl.RankingBlock.from_array([list(range(80))]))
    with pytest.raises(SettingsError, match="expected probabilities"):
        plots.plot_memberships([0.5, 0.5])


def test_plots__names_are_no_formulas():
    from plmix_dist.plots import plot_worths

    dollars = pl.PlackettLuceMixture(1).fit([["$a_b$", "x"], ["x", "$a_b$"]])
    axes = plot_worths(dollars)
    axes.figure.canvas.draw()
    assert {text.get_text() for text in axes.get_yticklabels()} == {r"\$a_b\$", "x"}


# --- tables with the user's ids ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_tables__of_every_kind_with_ids(tmp_path, kind):
    lines = ["id,item,rank", *(f"voter-{row},{item},{place}" for row, items in enumerate(ROWS) for place, item in
             enumerate(items, start=1))]  # fmt: skip
    (tmp_path / "v.csv").write_text("\n".join(lines) + "\n")
    store = pl.ingest(tmp_path / "v.csv", tmp_path / "s", format="long")
    model = pl.PlackettLuceMixture(2, random_state=0).fit(store)
    members, worths = model.memberships(store, table=kind), model.worths_frame(table=kind)
    as_lists = [
        {name: list(np.asarray(table[name])) for name in (table.column_names if kind == "arrow" else table)}
        if kind != "polars"
        else table.to_dict(as_series=False)
        for table in (members, worths)
    ]
    assert [str(one) for one in as_lists[0]["id"]] == [f"voter-{row}" for row in range(40)]
    np.testing.assert_allclose(
        as_lists[0]["probability 0"], np.asarray(model.predict_proba(store))[:, 0], rtol=1e-12
    )
    assert [str(one) for one in as_lists[1]["item"]] == list(model.item_names_)
