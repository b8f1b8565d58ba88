"""Plots draw what the model has, on the axes given."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.errors import SettingsError

ROWS = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 10


@pytest.fixture(scope="module")
def model() -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(2, random_state=0).fit(ROWS)


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


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.ShrunkenWarning")
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
        (plots.plot_leaderboard, model.leaderboard()),
        (plots.plot_check, model.check_fit(ROWS)),
        (plots.plot_convergence, model),
        (plots.plot_selection, table),
        (plots.plot_memberships, probabilities),
        (plots.plot_membership_map, probabilities),
        (plots.plot_membership_map, three),
        (plots.plot_comparison_graph, block),
        (lambda model, ax: plots.plot_ranks(model, ROWS, ax=ax), model),
        (lambda model, ax: plots.plot_two_models(model, model, ax=ax), model),
    ]
    for function, what in calls:
        figure, axes = pyplot.subplots()
        assert function(what, ax=axes) is axes
        figure.canvas.draw()
    named = {function.__name__ for function, _ in calls} - {"<lambda>"}
    assert set(plots.__all__) == named | {"plot_ranks", "plot_two_models"}


def test_plot_ranks__shares_of_all_places():
    from plmix_dist.plots import plot_ranks

    counts = {("a", "b", "c"): 50, ("b", "a", "c"): 30, ("c", "a", "b"): 15, ("a",): 5}
    rows = [list(order) for order, times in counts.items() for _ in range(times)]
    fitted = pl.PlackettLuceMixture(1, alpha=0, unranked="below").fit(rows)
    axes = plot_ranks(fitted, [*rows, [["a", "b"], "c"]])  # a row with ties does not count
    p = np.exp(fitted.log_worths_[0]) / np.exp(fitted.log_worths_[0]).sum()
    second = np.array([sum(p[k] * p[item] / (1 - p[k]) for k in range(3) if k != item) for item in range(3)])
    expected = 100 * np.column_stack([p, second, 1 - p - second])
    # Of the last row of five, only the first place is known.
    observed = np.array([[55.0, 45 / 0.95, 0], [30, 50 / 0.95, 15 / 0.95], [15, 0, 80 / 0.95]])
    assert axes.get_title().startswith("100 rankings")
    np.testing.assert_allclose(axes.images[0].get_array(), observed - expected, atol=1e-6)
    assert axes.texts[1].get_text() == f"47 ({expected[0, 1]:.0f})"
    with pytest.raises(pl.errors.SettingsError, match="no ranking here offers all items"):
        plot_ranks(fitted, [["a", "b"]], unranked="absent")


def test_plot_two_models__components_and_items_are_matched():
    from plmix_dist.plots import plot_two_models

    one = pl.PlackettLuceMixture.from_arrays([[2.0, 0, -2], [-1.0, 0, 1]], [0.6, 0.4], ["a", "b", "c"])
    other = pl.PlackettLuceMixture.from_arrays([[1.0, 0, -1], [-2.0, -1, 3]], [0.6, 0.4], ["c", "b", "a"])
    axes = plot_two_models(one, other, most_names=1)
    xs, ys = axes.lines[1].get_data()
    assert list(zip(xs, ys, strict=True)) == [(2.0, 3.0), (0.0, -1.0), (-2.0, -2.0)]
    assert axes.texts[0].get_text() in ("a", "b")
    with pytest.raises(pl.errors.SettingsError, match="same items"):
        plot_two_models(one, pl.PlackettLuceMixture.from_arrays([[1.0, 0]], [1.0], ["a", "b"]))


def test_plot_leaderboard__a_line_between_tiers():
    from plmix_dist.plots import plot_leaderboard

    board = {"component": [0, 0, 0], "item": ["a", "b", "c"], "rating": [3.0, 2.0, 1.0], "tier": [1, 1, 2]}
    lines = [line for line in plot_leaderboard(board).lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in lines] == [1.5]


def test_plot_membership_map__corners_of_the_triangle():
    from plmix_dist.plots import plot_membership_map

    points = plot_membership_map(np.eye(3)).collections[0].get_offsets()
    distances = [np.linalg.norm(points[i] - points[j]) for i, j in ((0, 1), (1, 2), (0, 2))]
    np.testing.assert_allclose(distances, 1.0)


def test_plot_membership_map__points_have_the_colours_of_their_components():
    from matplotlib.colors import to_hex

    from plmix_dist.display.marks import COMPONENTS
    from plmix_dist.plots import plot_membership_map

    points = plot_membership_map([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.2, 0.6, 0.2]]).collections[0]
    assert [to_hex(colour) for colour in points.get_facecolors()] == [COMPONENTS[number] for number in (0, 2, 1)]


def test_plot_comparison_graph__counts_pairs():
    block = pl.RankingBlock.from_array([[0, 1, -1], [2, -1, -1]], n_items=4, unranked="below", weights=[2, 1])
    expected = np.zeros((4, 4))
    for weight, order in ((2, [0, 1]), (1, [2])):
        for place, item in enumerate(order):
            for other in range(4):
                if other not in order[: place + 1]:
                    expected[item, other] += weight
    together = expected + expected.T
    widths = [0.5 + 2.5 * (weight / together.max()) for weight in together[np.triu(together) > 0]]
    axes = pl.plots.plot_comparison_graph(block)
    assert [line.get_linewidth() for line in axes.lines] == widths
    assert axes.get_title().endswith("the thickest line: 3 times")


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


def test_plot_memberships__counts_weights_and_persons_as_the_report_does(model, tmp_path):
    from plmix_dist.plots import plot_memberships

    weights = np.arange(1.0, 41.0)
    for axes in (
        plot_memberships(model, ROWS, sample_weight=weights),
        plot_memberships(model.predict_proba(ROWS), sample_weight=weights),
    ):
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(weights.sum())
        assert "of 820 memberships" in axes.get_title()
    rows = [pl.Ranking(tuple((item,) for item in row), (), "absent", 1.0) for row in ([0, 1, 2], [0, 2, 1], [2, 1, 0])]
    block = pl.RankingBlock.from_rows(rows, n_items=3, groups=["ann", "ann", "bob"])
    axes = plot_memberships(model, block)
    assert sum(bar.get_height() for bar in axes.patches) == 2
    assert axes.get_ylabel() == "persons"
    with pytest.raises(SettingsError, match="expected 40 weights"):
        plot_memberships(model.predict_proba(ROWS), sample_weight=[1.0])


def test_plot_memberships__bars_stand_on_each_other():
    from plmix_dist.plots import plot_memberships

    axes = plot_memberships(np.repeat(np.eye(3), [5, 3, 2], axis=0))
    last = [bars.patches[-1] for bars in axes.containers]  # of each component, those that are certain
    assert [(bar.get_y(), bar.get_height()) for bar in last] == [(0, 5), (5, 3), (8, 2)]


def test_plots__say_what_they_leave_out():
    from plmix_dist import plots

    many = pl.PlackettLuceMixture.from_arrays(np.random.default_rng(0).normal(size=(2, 87)))
    assert plots.plot_worths(many).get_title().endswith("; 20 of 87 items, best")
    assert plots.plot_worths(many, items=[1, 2]).get_title().endswith("; 2 of 87 items, chosen")
    assert plots.plot_worths(many, most_items=87).get_title() == "component 0, share 50.0 %"
    assert plots.plot_components(many).get_title() == "items by component; the 24 of 87 that differ most"
    points = np.full((5_001, 2), 0.5)
    assert "5,000 of 5,001 rankings" in plots.plot_membership_map(points).get_title()


def test_plot_components__has_the_colours_of_the_report(model):
    from matplotlib.colors import to_hex

    from plmix_dist.display.marks import heat_colour
    from plmix_dist.plots import plot_components

    image = plot_components(model).images[0]
    for share in (0.0, 0.2, 1.0):
        assert to_hex(image.cmap(image.norm(100 * share))) == heat_colour(int(share * 256) / 255 if share < 1 else 1.0)


def test_plot_selection__is_the_plot_of_a_selection():
    from plmix_dist.plots import plot_selection

    found = pl.MixtureSelection([1, 2], criterion="held-out", n_folds=2, random_state=0).fit(ROWS)
    axes, own = plot_selection(found), found.plot()
    assert axes.get_title() == own.get_title() == f"Held-out log-likelihood: {found.n_components_} components chosen"
    assert axes.get_ylabel() == "Held-out log-likelihood, larger is better"
    assert len(axes.containers) == 1  # with error bars
    assert plot_selection(found, "aic").get_title().endswith("the best AIC")
