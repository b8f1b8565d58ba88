"""The report: what it says is what the model says, labels stay labels, and it is one small file."""

from __future__ import annotations

import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.cli import main
from plmix_dist.display.marks import COMPONENTS, _contrast, heat_colour, label, percent, plain_label, text_on
from plmix_dist.errors import SettingsError, StoreExistsError, WeightWarning
from plmix_dist.report.cautions import _of_errors, cautions_of
from plmix_dist.report.components import _most_probable_beginnings, component_views, membership_sums, scale_of
from plmix_dist.report.history import selection_table

DRINKS = ["tea", "mate", "milk", "water", "coffee"]
NASTY = [
    '<script>alert("1")</script>',
    "\" onmouseover='alert(2)' x=\"",
    "\u202eright to left\u202c",
    "a\x1b[31m\nline & tea; </style>",
    "very long " * 60,
    "שלום",
]


class Page(HTMLParser):
    """The tags and the text of a page, with the rows of its tables; void tags need no end."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self._table: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)
        if tag == "table":
            self._table = dict(attrs).get("id")
        if self._table is not None and tag == "tr":
            self.rows.setdefault(self._table, []).append([])
        if self._table is not None and tag in ("td", "th"):
            self.rows[self._table][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))  # of SVG

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} ends out of turn"
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)
        if self._table is not None and {"td", "th"} & set(self.open):
            self.rows[self._table][-1][-1] += data


def two_tastes(names: list[str], n_rankings: int = 300) -> list[list[str]]:
    """Rankings of two opposite tastes, with noise."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(n_rankings):
        logs = np.linspace(2, -2, len(names)) * (1 if number % 3 else -1)
        rows.append([names[item] for item in np.argsort(-(logs + rng.gumbel(size=len(names))))])
    return rows


@pytest.fixture(scope="module")
def rankings() -> list[list[str]]:
    return two_tastes(DRINKS)


@pytest.fixture(scope="module")
def model(rankings) -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(2, random_state=3).fit(rankings)


@pytest.fixture(scope="module")
def page(model, rankings, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "drinks.html"
    return model.report(path, rankings, title="Drinks").read_text(encoding="utf-8")


def words(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(Page(page).text).replace("\xa0", " "))


# --- what it says --------------------------------------------------------------------------------------------------


def test_every_tag_is_closed_and_there_is_nothing_to_fetch(page):
    parsed = Page(page)
    assert parsed.open == []
    for tag, attributes in parsed.tags:
        assert tag not in ("img", "iframe", "object", "form")
        for name in ("src", "href"):
            target = attributes.get(name) or ""
            assert target.startswith(("#", "data:")) or not target
    assert not re.findall(r"https?://|@import|url\(", page)


def test_table_of_all_items_is_the_model(page, model):
    head, *rows = Page(page).rows["items"]
    assert len(head) == 2 + 1 + 2
    assert sorted(row[0] for row in rows) == sorted(DRINKS)
    chances = 1 / (1 + np.exp(-model.log_worths_))
    errors = model.standard_errors(two_tastes(DRINKS)).log_worths
    for row in rows:
        item = model.item_names_.index(row[0])
        assert float(row[1]) == pytest.approx(100 * model.shares_ @ chances[:, item], abs=0.051)
        for component in range(2):
            value, low, high = re.split("[ \u2013]", row[2 + component])
            worth, spread = model.log_worths_[component, item], 1.959964 * errors[component, item]
            assert float(value) == pytest.approx(100 * chances[component, item], abs=0.051)
            assert float(low) == pytest.approx(100 / (1 + math.exp(spread - worth)), abs=0.51)
            assert float(high) == pytest.approx(100 / (1 + math.exp(-spread - worth)), abs=0.51)
    overall = [float(row[1]) for row in rows]
    assert overall == sorted(overall, reverse=True)


def test_says_what_was_fitted_and_how_to_do_it_again(page, model):
    text = words(page)
    assert "300 rankings, of 5 items" in text
    assert "The fit settled" in text
    assert f"random_state={model.about_['seed']}" in text
    assert "n_components=2" in text
    assert f"numpy {np.__version__}" in text
    for stage in ("start: search for the best optimum", "fit"):
        assert stage in text


def test_digests__are_those_of_the_rankings_and_of_the_model(page, model, rankings, tmp_path):
    """A report of the same fit has both; one of other rankings, weights or settings has others."""

    def digests(text: str) -> list[str]:
        return re.findall(r"(rankings|model) <code>([0-9a-f]{16})</code>", text)

    again = pl.PlackettLuceMixture(2, random_state=model.about_["seed"]).fit(rankings)
    assert [name for name, _ in digests(page)] == ["rankings", "model"]
    assert digests(again.report(tmp_path / "again.html", rankings).read_text()) == digests(page)
    weighted = again.report(tmp_path / "weights.html", rankings, sample_weight=np.full(len(rankings), 1.0) * 2.0)
    assert digests(weighted.read_text())[0] != digests(page)[0]
    assert digests(pl.PlackettLuceMixture(1).fit(rankings).report(tmp_path / "one.html").read_text())[0] not in digests(
        page
    )


def test_other_solutions__are_those_of_the_search(model, rankings, tmp_path):
    own = {**model.init_, "search": {**model.init_["search"], "others": [{"behind": 0.01, "shares": [0.25, 0.75]}]}}
    other = pl.PlackettLuceMixture.from_json(model.to_json())
    other.init_ = own
    text = words(other.report(tmp_path / "others.html", rankings).read_text())
    assert "What else fits nearly as well? Other solutions that the search met" in text
    assert "shares of 75.0 %, 25.0 %: a log-likelihood lower by about 3" in text.replace("\xa0", " ")


def test_memberships__as_predicted(model, rankings):
    probabilities = model.predict_proba(rankings)
    found = membership_sums(probabilities, np.ones(len(rankings)))
    for component in range(2):
        mine = [row for row in probabilities.tolist() if row.index(max(row)) == component]
        assert found.weight[component] == len(mine)
        assert found.certain[component] == sum(max(row) >= 0.9 for row in mine)
        assert found.certainty[component] == pytest.approx(sum(row[component] for row in mine) / len(mine))
        assert found.together[component].sum() == pytest.approx(len(mine))
    assert found.histogram.sum() == len(rankings)


@pytest.mark.parametrize("grouped", [False, True])
def test_memberships__of_a_store_by_ranking_or_person(tmp_path, grouped):
    drawn = two_tastes(DRINKS, 60)
    rows = drawn[1::3] + drawn[2::3] + drawn[::3]  # a person has one taste
    header = "person,item,rank,id\n" if grouped else "id,item,rank\n"
    lines = [
        f"{number // 4},{item},{place},{number}" if grouped else f"{number},{item},{place}"
        for number, row in enumerate(rows)
        for place, item in enumerate(row, start=1)
    ]
    (tmp_path / "rows.csv").write_text(header + "\n".join(lines) + "\n")
    columns = {"group": "person"} if grouped else {}
    store = pl.ingest(tmp_path / "rows.csv", tmp_path / "s", format="long", columns={"id": "id", **columns})
    model = pl.PlackettLuceMixture(2, random_state=0).fit(store)
    text = words(model.report(tmp_path / "r.html", store).read_text())
    assert ("60 rankings by 15 persons" in text) == grouped
    table = model.memberships(store, table="dict")
    first = np.arange(60) % 4 == 0 if grouped else np.ones(60, bool)
    for component in range(2):
        count = int((table["component"][first] == component).sum())
        assert f"{count} {'persons' if grouped else 'rankings'}" in text


def test_typical_beginnings__brute_force():
    rng = np.random.default_rng(0)
    for n_items, n_places in ((2, 3), (4, 2), (6, 3)):
        logs = rng.normal(size=n_items) * 2
        worths = np.exp(logs)
        places = min(n_places, n_items)
        expected = []
        for items in itertools.permutations(range(n_items), places):
            probability, left = 1.0, worths.sum()
            for item in items:
                probability *= worths[item] / left
                left -= worths[item]
            expected.append((probability, items))
        expected.sort(reverse=True)
        found = _most_probable_beginnings(logs, n_places)
        for one, (probability, items) in zip(found, expected, strict=False):
            assert one.probability == pytest.approx(probability)
            if places < n_items:  # the last place of all has no choice, so orders may tie
                assert one.items == items


def test_what_sets_a_component_apart(model):
    mixture = pl.MixtureParams(model.log_worths_, model.shares_, model.item_names_)
    scale = scale_of(mixture, None)
    view = component_views(mixture, scale, None)[1]
    gain = scale.chance[1] - scale.overall
    assert view.liked[0].item == int(gain.argmax())
    assert view.disliked[0].item == int(gain.argmin())
    first = np.exp(model.log_worths_) / np.exp(model.log_worths_).sum(axis=1, keepdims=True)
    item = view.liked[0].item
    assert view.liked[0].lift == pytest.approx(first[1, item] / (model.shares_ @ first[:, item]))


# --- what is missing -----------------------------------------------------------------------------------------------


def test_without_data__says_what_data_would_add(model, tmp_path):
    text = words(model.report(tmp_path / "r.html").read_text())
    assert "give the rankings to the report" in text
    assert "\u2013" not in Page(model.report(tmp_path / "r.html").read_text()).rows["items"][1][2]


def test_saved_model__same_page_as_the_fitted_one(model, rankings, tmp_path):
    model.save(tmp_path / "model")
    loaded = pl.PlackettLuceMixture.load(tmp_path / "model")
    fitted, saved = (
        one.report(tmp_path / f"{number}.html", rankings).read_text() for number, one in enumerate((model, loaded))
    )
    assert fitted == saved


def test_model_of_parameters_alone__still_has_a_page(tmp_path):
    pl.MixtureParams.of([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5], ["tea", "mate"]).save(tmp_path / "m")
    text = words(pl.PlackettLuceMixture.load(tmp_path / "m").report(tmp_path / "r.html").read_text())
    assert "The model does not say what it was fitted to" in text
    assert "Nothing is recorded of how the fit ended" in text


def test_seed_is_recorded_also_where_none_was_given(rankings):
    model = pl.PlackettLuceMixture(2, random_state=None).fit(rankings)
    again = pl.PlackettLuceMixture(2, random_state=model.about_["seed"]).fit(rankings)
    np.testing.assert_array_equal(model.log_worths_, again.log_worths_)


# --- warnings in words ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_cautions(rankings):
    hasty = pl.PlackettLuceMixture(4, random_state=0, max_iter=1).fit(rankings)
    hasty.init_ = hasty.init_ | {
        "search": {"n_starts": 9, "n_best": 1, "n_ends": 4},
        "failed_starts": [{"error": "broke\n"}],
    }
    hasty.events_ = [{"iteration": 2, "component": 3, "action": "drop"}]
    titles = [caution.title for caution in cautions_of(hasty, None, None)]
    assert titles == [
        "Not converged",
        "The best solution was found only once",
        "More groups than the data can tell apart for certain",
        "A group lost all its rankings on the way",
        "Some starts failed",
    ]
    assert "broke\\n" in cautions_of(hasty, None, None)[-1].text


def test_cautions__a_flat_end_and_persons_with_too_few_rankings(model):
    flat = pl.PlackettLuceMixture.from_arrays(model.log_worths_, model.shares_, model.item_names_)
    known = {"certain": 1, "generic": 1, "described": "the rankings compare single pairs, 2 by most persons"}
    flat.converged_, flat.history_ = True, [{"flat": True}]
    flat.about_ = {"data": {"by_person": True, "identifiability": known}}
    assert [caution.title for caution in cautions_of(flat, None, None)] == [
        "The rankings hardly tell these groups apart",
        "More groups than the data can tell apart for certain",
    ]


def test_weights__of_the_fit_count_in_the_page_and_are_missed(tmp_path):
    rows, counts = [["tea", "mate", "milk"], ["milk", "mate", "tea"], ["mate", "tea", "milk"]], [30, 20, 10]
    repeated = [row for row, number in zip(rows, counts, strict=True) for _ in range(number)]
    weighted = pl.PlackettLuceMixture(1, random_state=0).fit(rows, sample_weight=counts)
    page = weighted.report(tmp_path / "w.html", rows, sample_weight=counts).read_text()
    plain = pl.PlackettLuceMixture(1, random_state=0).fit(repeated).report(tmp_path / "p.html", repeated).read_text()
    assert Page(page).rows["items"] == Page(plain).rows["items"]  # chances with their intervals
    assert str(weighted.summary(X=rows, sample_weight=counts)).count(" to ") >= 3
    with pytest.warns(WeightWarning, match="give the sample_weight of the fit"):
        weighted.report(tmp_path / "w.html", rows)


def test_no_cautions__says_what_was_checked_and_what_is_not_known(page, model, rankings, tmp_path):
    # A number of groups that was not compared with others is no reason for calm.
    assert '<p class="calm">' not in page
    assert "Not known: whether there are 2 groups, since no other numbers of groups were compared." in words(page)
    table = [{"n_components": k, "bic": 10.0 - k} for k in (1, 2)]
    compared = model.report(tmp_path / "c.html", rankings, selection=table).read_text()
    assert '<p class="calm">' in compared
    assert "No warnings. Checked: the fit settled; intervals are shown; 4 starts from different places" in words(
        compared
    )
    one = model.report(tmp_path / "o.html", rankings, selection=table[1:]).read_text()
    assert '<p class="calm">' not in one
    without = model.report(tmp_path / "r.html", selection=table).read_text()
    assert '<p class="calm">' not in without
    assert "No warnings, but not all is known. Checked: the fit settled" in words(without)
    assert "Not known: how certain the numbers are; how certain memberships are." in words(without)


def test_uncertain_memberships_and_variations_of_one_end_are_no_reassurance(model, rankings, tmp_path):
    unsure = pl.PlackettLuceMixture.from_arrays(0.2 * model.log_worths_, [0.5, 0.5], model.item_names_)
    unsure.converged_, unsure.about_ = True, model.about_
    unsure.init_ = {"search": {"n_starts": 9, "n_best": 8, "n_ends": 2, "n_varied": 7}}
    page = unsure.report(tmp_path / "r.html", rankings).read_text()
    text = words(page)
    certain = (unsure.predict_proba(rankings).max(axis=1) >= 0.9).mean()
    assert certain < 0.5
    assert f"Only {100 * certain:.0f} % belong to one group" in text
    assert "Others that ended there were variations of it" in text
    assert 'class="calm"' not in page
    unsure.init_ = {"search": {"n_starts": 9, "n_best": 7, "n_ends": 2, "n_varied": 7}}
    caution = next(one for one in cautions_of(unsure, None, None) if one.title.startswith("Only variations"))
    assert caution.text.startswith("Of 9 starts, none but variations of an earlier solution ended at the one")


def test_groups__are_named_from_one_and_told_in_words(page, model, rankings, tmp_path):
    text = words(page)
    assert "Group 1" in text
    assert not re.search(r"[Cc]omponent \d", text)
    best, *_, last = (model.item_names_[item] for item in np.argsort(-model.log_worths_[0]))
    assert re.search(rf"group 1 : \d+ % of the rankings\. They rank {best} , .* highest and {last} lowest", text)
    named = words(model.report(tmp_path / "r.html", rankings, names=["early", "late"]).read_text())
    assert "most often late" in named
    for names in (["early"], ["early", "early"], ["early", " "]):
        with pytest.raises(SettingsError, match="2 different names"):
            model.report(tmp_path / "r.html", names=names)


def test_model_of_a_selection__knows_its_data_and_how_it_was_chosen(rankings, tmp_path):
    found = pl.MixtureSelection([1, 2], random_state=5).fit(rankings)
    found.best_estimator_.save(tmp_path / "m")
    text = words(pl.PlackettLuceMixture.load(tmp_path / "m").report(tmp_path / "r.html").read_text())
    assert "300 rankings, of 5 items" in text
    assert "plm.MixtureSelection(n_components=[1, 2], criterion='bic'" in text
    assert "random_state=5" in text
    assert "Groups BIC BIC, no prior AIC ICL Log-likelihood per ranking" in text
    assert found.words_ in text


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_model_of_draws__knows_its_data_and_its_chains(rankings, tmp_path, capsys):
    model = pl.BayesianPlackettLuceMixture(2, n_warmup=5, n_draws=8, random_state=4).fit(rankings)
    model.save(tmp_path / "m")
    assert run(capsys, "report", tmp_path / "m")[0] == 0
    text = words((tmp_path / "m.html").read_text())
    assert "300 rankings, of 5 items" in text
    assert "plm.BayesianPlackettLuceMixture(n_components=2, n_draws=8, n_warmup=5, random_state=4)" in text
    assert f"the largest R-hat is {model.diagnostics_.largest_r_hat:.3f}" in text
    assert "max_iter" not in text
    best = int(model.log_worths_[0].argmax())
    low, high = (round(100 / (1 + math.exp(-end[0, best]))) for end in model.intervals().log_worths)
    assert f"{low}\u2013{high}" in text
    sure = (model.converged_, "The chains have not mixed" in text)
    assert sure in ((True, False), (False, True))


def test_style__no_name_breaks_where_it_need_not_and_wide_tables_scroll(page):
    style = (Path(pl.__file__).parent / "report" / "style.css").read_text()
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", style))
    breaking = {place.strip() for place, rule in rules if "overflow-wrap: anywhere" in rule or "word-break" in rule}
    # Code and settings; and names in tables where a column would be cut, which the browser's tests look at.
    assert breaking == {"pre", ".plain td, .plain th", "tbody th bdi"}
    inside = re.split(r"<table", page)[1:]
    before = [page[: page.index(f"<table{part}")][-60:] for part in inside]
    assert all('class="scroll' in words_before for words_before in before if "All items" not in words_before)
    assert page.count("<details>") == 3  # iterations, time, settings: folded away


@pytest.mark.parametrize(
    ("n_items", "words"), [(4, "0, 1, 2, 3."), (5, "0, 1, 2, 3, 4."), (7, "0, 1, 2, 3, 4 and 2 more.")]
)
def test_cautions__items_without_data_are_named_up_to_five(n_items, words):
    errors = SimpleNamespace(unidentified=[SimpleNamespace(items=[str(item)] * 2) for item in range(n_items)])
    (caution,) = _of_errors(errors)
    assert f"about: {words} Their numbers" in caution.text


# --- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.promise(35)
def test_labels_cannot_steer_the_page(tmp_path):
    model = pl.PlackettLuceMixture(2, random_state=0).fit(two_tastes(NASTY))
    selection = [{"n_components": 2, "<img src=x>": 1.0}]
    path = model.report(tmp_path / "r.html", title='<b>"title"</b>', selection=selection)
    text = path.read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == []
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert "img" not in {tag for tag, _ in parsed.tags}
    assert not set("\u202e\u202c\x1b") & set(text)
    shown = {row[0] for row in parsed.rows["items"][1:]}
    assert plain_label(NASTY[0]) in shown
    assert "שלום" in shown
    assert "\\u202eright to left\\u202c" in shown


@pytest.mark.promise(35)
@pytest.mark.parametrize("name", NASTY)
def test_labels_in_notebooks(name):
    model = pl.PlackettLuceMixture(1).fit([[name, "tea"], ["tea", name]])
    parsed = Page(model._repr_html_())
    assert parsed.open == []
    assert {tag for tag, _ in parsed.tags} <= {
        "style", "div", "b", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "bdi",
    }  # fmt: skip
    assert not set("\u202e\u202c\x1b\n") & set(label(name))


def test_joiners_stay():
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert plain_label(persian) == persian


# --- the file ------------------------------------------------------------------------------------------------------


def test_size__n_1000_k_8_with_intervals_under_2_mb(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"an item with a name of some length {number}" for number in range(1000)]
    mixture = pl.MixtureParams.of(rng.normal(size=(8, 1000)), rng.dirichlet(np.ones(8)), names)
    mixture.save(tmp_path / "m")
    model = pl.PlackettLuceMixture.load(tmp_path / "m")
    from plmix_dist.uncertainty.results import StandardErrors

    blocks = (*(np.eye(1000) * 0.01 for _ in range(8)), np.eye(8) * 1e-4)
    blind = tuple(np.zeros((len(block), 0)) for block in blocks)
    errors = StandardErrors(mixture, blocks, blind, (), "information", 0, np.zeros_like(mixture.log_worths))
    written = model.report(tmp_path / "r.html", standard_errors=errors)
    assert written.stat().st_size < 2_000_000
    assert len(Page(written.read_text()).rows["items"]) == 1001


def test_a_report_is_replaced_and_nothing_else(model, tmp_path):
    path = tmp_path / "r.html"
    model.report(path)
    model.report(path, title="again")
    assert "again" in path.read_text()
    path.write_text("my own notes")
    with pytest.raises(StoreExistsError, match="is not a report"):
        model.report(path)
    assert path.read_text() == "my own notes"
    with pytest.raises(StoreExistsError, match="is a folder"):
        model.report(tmp_path)
    with pytest.raises(SettingsError, match="no folder"):
        model.report(tmp_path / "no" / "r.html")
    assert [one.name for one in tmp_path.iterdir()] == ["r.html"]


def test_wrong_standard_errors(model, rankings, tmp_path):
    with pytest.raises(SettingsError, match="hand them in as X"):
        model.report(tmp_path / "r.html", standard_errors=True)
    with pytest.raises(SettingsError, match="standard_errors must be"):
        model.report(tmp_path / "r.html", standard_errors=3)
    other = pl.PlackettLuceMixture(1).fit([[0, 1], [1, 0]])
    with pytest.raises(SettingsError, match="do not belong to this model"):
        model.report(tmp_path / "r.html", standard_errors=other.standard_errors([[0, 1], [1, 0]]))


# --- how K was chosen ----------------------------------------------------------------------------------------------

RECORDS = [
    {"n_components": 3, "bic": 9.5, "held_out": -2.0, "note": "x", "ended": True},
    {"n_components": 2, "bic": 10.0, "held_out": float("nan"), "note": "y", "ended": True},
]


def as_frames() -> list[Any]:
    import pandas as pd
    import polars
    import pyarrow as pa

    class Selection:
        table_ = RECORDS

    columns = {name: [record[name] for record in RECORDS] for name in RECORDS[0]}
    return [
        RECORDS, {"table": RECORDS}, columns, Selection(), pd.DataFrame(RECORDS), polars.DataFrame(RECORDS),
        pa.Table.from_pylist(RECORDS),
    ]  # fmt: skip


def test_selection__of_any_kind_of_table():
    for table in as_frames():
        found = selection_table(table)
        assert found.n_components == [2, 3]
        assert list(found.columns) == ["bic", "held_out"]
        assert found.best("bic") == 3
        assert found.best("held_out") == 3


@pytest.mark.parametrize(
    ("table", "message"), [([], "no rows"), ([{"bic": 1.0}], "n_components"), (7, "list of records")]
)
def test_selection__errors(table, message):
    with pytest.raises(SettingsError, match=message):
        selection_table(table)


def test_selection__on_the_page(model, tmp_path):
    text = words(model.report(tmp_path / "r.html", selection=RECORDS).read_text())
    assert "2 shown" in text
    assert "bold" in text


# --- the command line ----------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


def test_verb(tmp_path, capsys, model):
    pl.simulate(tmp_path / "s", n_rankings=200, n_items=5, n_components=2, random_state=0)
    fitted = pl.PlackettLuceMixture(2, random_state=0).fit(tmp_path / "s")
    fitted.save(tmp_path / "m")
    code, out, _ = run(capsys, "report", tmp_path / "m", "--data", tmp_path / "s", "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(tmp_path / "m.html")
    assert Path(json.loads(out)["report"]).stat().st_size == json.loads(out)["n_bytes"]
    written = (tmp_path / "m.html").read_text()
    assert (str(tmp_path) in written, "Read from <bdi>s</bdi>" in written) == (False, True)
    assert "rankings = &#39;s&#39;" in written
    (tmp_path / "k.json").write_text(json.dumps({"table": RECORDS}).replace("NaN", "null"))
    target = tmp_path / "other.html"
    code, out, _ = run(
        capsys, "report", tmp_path / "m", "--out", target, "--selection", tmp_path / "k.json", "--title", "T",
        "--names", "Reds, the <b>Greens</b>",
    )  # fmt: skip
    assert code == 0
    assert "<bdi>the &lt;b&gt;Greens&lt;/b&gt;</bdi>" in target.read_text()
    code, _, err = run(capsys, "report", tmp_path / "m", "--names", "Reds")
    assert (code, "names must be 2 different names, one per component" in err) == (1, True)
    assert "--data STORE" in out
    assert "<h1>T</h1>" in target.read_text()
    (tmp_path / "bad.json").write_text("{")
    code, _, err = run(capsys, "report", tmp_path / "m", "--selection", tmp_path / "bad.json")
    assert (code, "is not JSON" in err) == (1, True)


def test_verb__no_model(tmp_path, capsys):
    code, _, err = run(capsys, "report", tmp_path / "nothing")
    assert code == 1
    assert "no model" in err


# --- colours -------------------------------------------------------------------------------------------------------


def test_text_on_colours_can_be_read():
    for colour in [*COMPONENTS, *(heat_colour(share / 50) for share in range(51))]:
        assert _contrast(text_on(colour), colour) >= 4.5


def test_percent__never_rounds_to_a_certainty():
    assert percent(0.999999, 1) == ">99.9\xa0%"
    assert percent(0.0) == "0\xa0%"


def test_memberships__of_a_model_with_covariates_use_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    of_second = np.arange(300) % 2
    worths = np.array([[1.0, 0.0, -1.0], [-1.0, 0.0, 1.0]])[of_second]
    rows = np.argsort(-worths - rng.gumbel(size=(300, 3)), axis=1)
    columns = 4.0 * of_second[:, None] - 2  # they tell groups apart that three items cannot
    model = pl.PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=columns, client=False)
    certain = (model.predict_proba(rows, membership_covariates=columns).max(axis=1) >= 0.9).mean()
    assert certain > 0.95
    page = model.report(tmp_path / "r.html", rows, membership_covariates=columns).read_text()
    assert f"For {100 * certain:.0f}\xa0% of the rankings, one group has a probability of at least 90" in page
