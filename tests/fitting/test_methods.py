"""Settings of a wrong type or out of range: each is refused by name, before anything is computed."""

from __future__ import annotations

import dataclasses
import pickle
import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone

from plmix_dist import (
    KernelStart,
    Moments,
    PlackettLuceMixture,
    Random,
    Spectral,
    SpectralPlackettLuce,
    ingest,
    open_store,
    simulate,
)
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import PlmixError, RankingError, SettingsError, StoreNotFoundError
from plmix_dist.fitting.starts.settings import flat_start, start_of
from plmix_dist.passes import memory as memory_needed
from plmix_dist.passes.memory import check_memory
from plmix_dist.rankings import RankingBlock
from plmix_dist.settings import seed_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = np.array([[0, 1, 2]] * 6 + [[2, 1, 0]] * 3 + [[1, 0, 2]])

# Each: a setting, a value, and the words of the error.
WRONG: list[tuple[str, Any, str]] = [
    ("n_components", 2.5, "n_components must be a whole number from 1 on, but is 2.5 (float)"),
    ("n_components", 2.0, "but is 2.0 (float)"),
    ("n_components", "2", "n_components must be a whole number from 1 on, but is '2' (str)"),
    ("n_components", None, "n_components must be a whole number from 1 on, but is None"),
    ("n_components", True, "n_components must be a whole number from 1 on, but is True (bool)"),
    ("n_components", 0, "n_components must be a whole number from 1 on, but is 0"),
    ("n_components", -3, "but is -3"),
    ("n_components", [2], "but is [2] (list)"),
    ("n_components", np.array(2), "but is an array of int64 of shape ()"),
    ("n_components", 10**9, "3 items in 1,000,000,000 components need at least 600 GB of memory"),
    ("n_components", 10**400, "no machine has memory for more than 1e+30 items, components or starts"),
    ("n_init", 0, "n_init must be a whole number from 1 on, but is 0"),
    ("n_init", 1.5, "n_init must be a whole number from 1 on, but is 1.5 (float)"),
    ("n_init", None, "n_init must be a whole number from 1 on, but is None"),
    ("n_init", 10**13, "from 10,000,000,000,000 starts need at least"),
    ("max_iter", 0, "max_iter must be a whole number from 1 on, but is 0"),
    ("max_iter", 1e3, "max_iter must be a whole number from 1 on, but is 1000.0 (float)"),
    ("max_iter", "500", "max_iter must be a whole number from 1 on, but is '500' (str)"),
    ("max_iter", None, "max_iter must be a whole number from 1 on, but is None"),
    ("alpha", None, "alpha must be a finite number from 0 on, at most 1e+100, but is None"),
    ("alpha", -0.1, "alpha must be a finite number from 0 on, at most 1e+100, but is -0.1"),
    ("alpha", "0.1", "but is '0.1' (str)"),
    ("alpha", np.nan, "but is nan"),
    ("alpha", np.inf, "but is inf"),
    ("alpha", 1e300, "but is 1e+300"),
    ("alpha", 10**400, "but is 1000"),
    ("alpha", True, "but is True (bool)"),
    ("alpha", [0.1], "but is [0.1] (list)"),
    ("tol", "x", "tol must be a finite number above 0, but is 'x' (str)"),
    ("tol", 0, "tol must be a finite number above 0, but is 0 (int)"),
    ("tol", None, "tol must be a finite number above 0, but is None"),
    ("tol", np.nan, "tol must be a finite number above 0, but is nan"),
    ("tol", 1e-8j, "tol must be a finite number above 0, but is 1e-08j (complex)"),
    ("shares", "half", "shares must be numbers, but is 'half' (str)"),
    ("shares", 1.0, "shares must be positive numbers that sum to 1, one per component, but is 1.0"),
    ("shares", [0.5], "shares must be positive numbers that sum to 1, one per component, but is [0.5]"),
    ("shares", [0.2, 0.3, 0.5], "shares must be 2 numbers, one per component, but there are 3"),
    ("shares", [[0.5, 0.5]], "but is [[0.5, 0.5]]"),
    ("shares", [0.5, [0.5]], "shares must be an array of numbers, but is [0.5, [0.5]] (list)"),
    ("shares", [np.nan, 1.0], "but is [nan, 1.0]"),
    ("shares", [0.0, 1.0], "but is [0.0, 1.0]"),
    ("shares", [-0.5, 1.5], "but is [-0.5, 1.5]"),
    ("shares", [0.6, 0.6], "but is [0.6, 0.6]"),
    ("shares", {"a": 1}, "shares must be numbers, but is {'a': 1} (dict)"),
    ("init", "spectal", "and no model is at this path; did you mean 'spectral'?"),
    ("init", "Random", "did you mean 'random'?"),
    ("init", "", "a store needs a path or a URL, but got an empty one"),
    (
        "init",
        None,
        "init must be spectral, random, kernel, moments, a fitted model, the path of one, or an array of log-worths",
    ),
    ("init", 5, "but is 5 (int)"),
    ("init", np.zeros((3, 3)), "init has shape (3, 3), but 2 components of 3 items are to be fitted"),
    ("init", [["a", "b", "c"]] * 2, "init must be numbers, but is"),
    ("init", [[0.0, 0.0], [0.0]], "init must be an array of numbers"),
    ("init", np.full((2, 3), np.inf), "init must be finite log-worths, but init[0, 0] is inf"),
    ("m_step", "MM", "m_step must be auto, lsr, mm, cml, gmm or stochastic-lsr, but is 'MM'; did you mean 'mm'?"),
    ("m_step", None, "m_step must be auto, lsr, mm, cml, gmm or stochastic-lsr, but is None"),
    ("em", "fusd", "em must be fused or exact, but is 'fusd'; did you mean 'fused'?"),
    ("accelerate", "yes", "accelerate must be True or False, but is 'yes' (str)"),
    ("accelerate", 1, "accelerate must be True or False, but is 1 (int)"),
    ("residency", "memry", "residency must be auto, memory or store, but is 'memry'; did you mean 'memory'?"),
    ("residency", None, "residency must be auto, memory or store, but is None"),
    ("random_state", -1, "random_state must be a whole number from 0 on, a numpy RandomState or Generator, or None"),
    ("random_state", 1.5, "but is 1.5 (float)"),
    ("random_state", "0", "but is '0' (str)"),
    ("random_state", True, "but is True (bool)"),
    ("progress", 3, "progress must be True, a function or None, but is 3 (int)"),
]


@pytest.mark.promise(42)
@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=[f"{name}={shown(value)}" for name, value, _ in WRONG])
def test_setting__refused_by_name(name: str, value: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        PlackettLuceMixture(**{name: value}).fit(ROWS)


SHARED = ("n_components", "residency", "random_state")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [case for case in WRONG if case[0] in SHARED],
    ids=[f"{name}={shown(value)}" for name, value, _ in WRONG if name in SHARED],
)
def test_setting__refused_by_the_spectral_start_too(name: str, value: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        SpectralPlackettLuce(**{name: value}).fit(ROWS)


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("start", "field", "value", "words"),
    [
        (Spectral, "embedding", "ranks", "embedding must be auto, pairwise or rank, but is 'ranks'; did you mean"),
        (Spectral, "embedding", 3, "embedding must be auto, pairwise or rank, but is 3 (int)"),
        (Spectral, "embedding", ["rank"], "but is ['rank'] (list)"),
        (Spectral, "link", "logitt", "link must be logit or probit, but is 'logitt'; did you mean 'logit'?"),
        (KernelStart, "link", None, "link must be logit or probit, but is None"),
        (KernelStart, "kernel", "kendal", "kernel must be kendall or mallows, but is 'kendal'; did you mean"),
        (KernelStart, "kernel", np.array(["kendall"]), "but is an array of <U7 of shape (1,)"),
        (Spectral, "rank", 0, "rank must be 'auto', 'paper' or a whole number from 1 on, but is 0 (int)"),
        (Spectral, "rank", 1.0, "but is 1.0 (float)"),
        (Spectral, "rank", "papr", "but is 'papr'; did you mean 'paper'?"),
        (Spectral, "rank", np.array([1]), "but is an array of int64 of shape (1,)"),
        (Spectral, "threshold", 0, "threshold must be a finite number above 0, but is 0 (int)"),
        (Spectral, "cluster_worths", "mm", "cluster_worths must be least-squares or lsr, but is 'mm'"),
    ],
    ids=str,
)  # fmt: skip
def test_start__fields_are_refused_by_name(start: Any, field: str, value: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        start(**{field: value})


@pytest.mark.parametrize("kind", [PlackettLuceMixture, SpectralPlackettLuce])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("embedding", "init=plm.Spectral(embedding=...)"),
        ("svd_rank", "init=plm.Spectral(rank=...)"),
        ("svd_threshold", "init=plm.Spectral(threshold=...)"),
        ("cluster_worths", "init=plm.Spectral(cluster_worths=...)"),
        ("link", "init=plm.Spectral(link=...)"),
        ("kernel", "init=plm.KernelStart(kernel=...)"),
    ],
)
def test_start__old_parameters_are_refused_with_the_new_spelling(kind: Any, old: str, new: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{old} says how a start works and is not a parameter; write {new}")):
        kind(2, **{old: "auto"})


FOUR = np.array([[0, 1, 2, 3]] * 6 + [[3, 2, 1, 0]] * 3 + [[1, 0, 2, 3], [3, 1, 2, 0]])
STARTS = (Spectral(rank=2), Spectral(), KernelStart(link="probit"), Moments(), Random())


@pytest.mark.parametrize("start", STARTS, ids=repr)
def test_start__is_a_value(start: Any, tmp_path: Path) -> None:
    assert start == dataclasses.replace(start)
    assert [start == other for other in STARTS].count(True) == 1
    assert len({*STARTS, start}) == len(STARTS)
    assert clone(start) == start
    assert pickle.loads(pickle.dumps(start)) == start
    model = PlackettLuceMixture(2, init=start, max_iter=5)
    assert clone(model).init == clone(model, safe=False).get_params()["init"] == start
    with pytest.raises(AttributeError):
        start.name = "another"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(FOUR).save(tmp_path / "model")
    # Saved models have names and strings: a start whose fields have their defaults is the same as its name.
    again = PlackettLuceMixture.load(tmp_path / "model").init
    assert flat_start(again) == flat_start(start)
    assert again == (start if start in (Spectral(rank=2), KernelStart(link="probit")) else start.name)


@pytest.mark.parametrize("start", [Spectral(), KernelStart(), Moments(), Random()], ids=repr)
def test_start__a_value_and_its_name_are_the_same(start: Any) -> None:
    by_value, by_name = (PlackettLuceMixture(2, init=init, random_state=1).fit(FOUR) for init in (start, start.name))
    assert by_value.log_worths_.tobytes() == by_name.log_worths_.tobytes()


def test_start__repr_has_what_is_not_default() -> None:
    assert repr(Spectral(rank=3, link="probit")) == "Spectral(rank=3, link='probit')"
    assert "init=Spectral(rank=3)" in repr(PlackettLuceMixture(2, init=Spectral(rank=3)))


def test_start__fields_of_another_start_are_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"kernel belongs to init='kernel', but init is 'spectral'; leave kernel out"
    ):
        start_of({"init": "spectral", "kernel": "mallows"})
    with pytest.raises(SettingsError, match=r"link belongs to init='spectral' or 'kernel', but init is 'some/model'"):
        start_of({"init": "some/model", "link": "probit"})
    # Models that were saved when these were parameters have them beside any start.
    assert start_of({"init": "random", "kernel": "mallows"}, strict=False) == "random"


def test_setting__refused_before_the_data_are_looked_at() -> None:
    with pytest.raises(SettingsError, match="n_components"):
        PlackettLuceMixture("2").fit("/no/such/store")  # type: ignore[arg-type]


def test_setting__numbers_of_numpy_are_numbers() -> None:
    plain = PlackettLuceMixture(2, max_iter=50, alpha=1.0, tol=1e-6, random_state=3).fit(ROWS)
    numpy = PlackettLuceMixture(
        np.int64(2), max_iter=np.uint8(50), alpha=1, tol=np.float64(1e-6), random_state=np.int32(3),
        accelerate=np.bool_(True), n_init=np.int16(1),
    ).fit(ROWS)  # type: ignore[arg-type]  # fmt: skip
    assert np.array_equal(plain.log_worths_, numpy.log_worths_)


def test_init__a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", str(tmp_path / "nothing")):
        with pytest.raises(StoreNotFoundError, match="no model at"):
            PlackettLuceMixture(2, init=path).fit(ROWS)


def test_init__a_spectral_model_will_do() -> None:
    start = SpectralPlackettLuce(2, random_state=0).fit(ROWS)
    assert PlackettLuceMixture(2, init=start).fit(ROWS).converged_


# --- seeds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_seed__generators_advance(make: Callable[[int], Any]) -> None:
    state = make(7)
    drawn = [seed_of(state), seed_of(state)]
    again = make(7)
    assert drawn == [seed_of(again), seed_of(again)], "the same generator gives the same seeds"
    assert drawn[0] != drawn[1], "a second fit has another seed"
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_seed__of_numbers_and_of_nothing() -> None:
    assert [seed_of(seed) for seed in (0, 7, np.int64(7), 2**70)] == [0, 7, 7, 2**70]
    assert seed_of(None) != seed_of(None)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_seed__fits_and_samples_from_generators(make: Callable[[int], Any]) -> None:
    fits = [PlackettLuceMixture(2, init="random", random_state=make(1)).fit(ROWS) for _ in range(2)]
    assert np.array_equal(fits[0].log_worths_, fits[1].log_worths_)
    samples = [fits[0].sample(5, random_state=make(1))[0] for _ in range(2)]
    assert np.array_equal(*samples)
    assert clone(fits[0]).random_state is fits[0].random_state
    with pytest.raises(SettingsError, match=r"n must be a whole number from 1 on, but is 2.5"):
        fits[0].sample(2.5)  # type: ignore[arg-type]


# --- data and arguments of fit ---------------------------------------------------------------------------


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"X": [[0, 1], [1]]}, "row 1 lists 1 of 2 items, and nothing says whether the others were on offer"),
        ({"X": [[0, 1], 5]}, "row 1 must be a list of items, best first, but is 5 (int); a row of one item"),
        ({"X": None}, "expected an array of shape (rankings, places), best first, but got NoneType; hand in"),
        ({"X": 5}, "but got int; hand in a store, its path, a list of lists, an array or a table"),
        ({"X": [0, 1]}, "but got shape (2,)"),
        ({"X": [[["a"]]]}, "item a alone was on offer, so nothing was chosen"),
        ({"X": [[0, 1], [0.5, 1]]}, "row 1, column 0: 0.5 is not an item number; items are whole numbers from 0"),
        ({"X": [[10**400, 0]]}, "row 0, column 0: expected an item's name or its number, a whole number, but got 1000"),
        ({"X": [[True, False]]}, "expected item names or integer item numbers, but got bool"),
        ({"X": np.ma.masked_equal([[0, 1], [1, 0]], 1)}, "fill masked places with -1 first: array.filled(-1)"),
        ({"X": np.zeros((0, 3), int)}, "no rankings were given"),
        ({"X": [[0, 10**12]], "unranked": "below"}, "1,000,000,000,001 items need at least 400,000 GB of memory"),
        ({"n_items": 10**12, "unranked": "below"}, "1,000,000,000,000 items need at least 400,000 GB of memory"),
        ({"n_items": 2.5}, "n_items must be a whole number from 1 on, but is 2.5 (float)"),
        ({"n_items": "3"}, "n_items must be a whole number from 1 on, but is '3' (str)"),
        ({"n_items": 0}, "n_items must be a whole number from 1 on, but is 0"),
        ({"n_items": 2}, "item 2 is out of range: there are 2 items"),
        ({"unranked": "bellow"}, "unranked must be below or absent, but is 'bellow'; did you mean 'below'?"),
        ({"unranked": 1}, "unranked must be below or absent, but is 1 (int)"),
        ({"sample_weight": [1.0] * 9}, "expected 10 sample weights, one per ranking, but got shape (9,)"),
        ({"sample_weight": 1.0}, "expected 10 sample weights, one per ranking, but got shape ()"),
        ({"sample_weight": "heavy"}, "sample_weight must be numbers, but is 'heavy' (str)"),
        ({"sample_weight": [1j] * 10}, "sample_weight must be numbers"),
        ({"sample_weight": [[1.0], [1.0, 2.0]]}, "sample_weight must be an array of numbers"),
        ({"sample_weight": [np.nan] * 10}, "sample_weight[0] is nan, but must be finite, not negative, and at"),
        ({"sample_weight": [1.0] * 9 + [1.7e308]}, "sample_weight[9] is 1.7e+308, but must be finite"),
        ({"sample_weight": [0.0] * 10}, "all weights are zero"),
        ({"sample_weight": [1e-320] * 10}, "all weights together are 9.99989e-320, which is too little"),
        ({"client": 7}, "client must be a Dask client, a cluster, the address of a scheduler, False for threads of "),
    ],
    ids=str,
)  # fmt: skip
def test_fit__refuses_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises((SettingsError, RankingError), match=re.escape(words)):
        PlackettLuceMixture(2).fit(**({"X": ROWS} | given))


def test_unranked__checked_for_blocks_too() -> None:
    with pytest.raises(SettingsError, match="unranked must be below or absent"):
        as_rankings(RankingBlock.from_array(ROWS), unranked="abset")  # type: ignore[arg-type]


# --- memory ----------------------------------------------------------------------------------------------


def test_memory__by_what_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_needed, "free_memory", lambda: 4e6)
    check_memory(10_000)
    with pytest.raises(SettingsError, match=r"10,001 items need at least 0.004 GB of memory, and .* 0.004 GB to spare"):
        check_memory(10_001)
    with pytest.raises(SettingsError, match=r"100 items in 1,000 components need .*; ask for fewer"):
        check_memory(100, 1_000)
    with pytest.raises(SettingsError, match=r"100 items in 1 components from 10,000 starts need"):
        check_memory(100, 1, 10_000)


def test_memory__no_more_worths_than_kernels_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_needed, "free_memory", lambda: 1e30)
    check_memory(2**29 - 1)
    with pytest.raises(SettingsError, match="536,870,912 items are more than can be fitted"):
        check_memory(2**29)
    with pytest.raises(SettingsError, match="in 5 components are more than can be fitted"):
        check_memory(2**28, 5)


# --- ingest ----------------------------------------------------------------------------------------------


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": 5}, "a source must be a path, a URL, several of these, or an integer array"),
        ({"source": [[0, 1]]}, "but is [0, 1] (list)"),
        ({"source": "~nobody-here/a.csv"}, "~nobody-here/a.csv cannot be found"),
        ({"source": "nofs://bucket/a.csv"}, "nofs://bucket/a.csv cannot be found: Protocol not known: nofs"),
        ({"format": "orderngs"}, "unknown format 'orderngs'; choose one of auto, preflib"),
        ({"format": None}, "unknown format None"),
        ({"on_error": "drp"}, "on_error must be raise, drop or quarantine, but is 'drp'; did you mean 'drop'?"),
        ({"on_error": None}, "on_error must be raise, drop or quarantine, but is None"),
        ({"unranked": "belw"}, "unranked must be below or absent, but is 'belw'; did you mean 'below'?"),
        ({"delimiter": 7}, "the delimiter must be one character, but is 7 (int)"),
        ({"columns": "id"}, "columns must give a column name for each role, but is 'id' (str)"),
        ({"columns": {"id": 3}}, "columns must give a column name for each role, but is {'id': 3} (dict)"),
        ({"merge": "yes"}, "merge must be True or False, but is 'yes' (str)"),
        ({"append": 1}, "append must be True or False, but is 1 (int)"),
        ({"leaf_rows": 0}, "leaf_rows must be a whole number from 1 on, but is 0"),
        ({"leaf_rows": 2.5}, "leaf_rows must be a whole number from 1 on, but is 2.5 (float)"),
        ({"chunk_bytes": "1 MB"}, "chunk_bytes must be a whole number from 1 on, but is '1 MB' (str)"),
        ({"item_names": ["tea", 3]}, "item_names: an item name must be text, but is 3"),
        ({"source": ROWS, "weights": "x"}, "weights must be numbers, but is 'x' (str)"),
        ({"source": ROWS, "n_items": 10**12}, "1,000,000,000,000 items need at least 400,000 GB of memory"),
        ({"source": ROWS, "n_items": 3.0}, "n_items must be a whole number from 0 on, but is 3.0 (float)"),
        ({"source": np.array([[0, 10**12]])}, "1,000,000,000,001 items need at least 400,000 GB of memory"),
        ({"source": np.ma.masked_equal(ROWS, 1)}, "fill masked places with -1 first"),
    ],
    ids=str,
)  # fmt: skip
def test_ingest__refuses_by_name(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("first,second\ntea,mate\n")
    with pytest.raises(PlmixError, match=re.escape(words)):
        ingest(**({"source": tmp_path / "a.csv", "store": tmp_path / "store"} | options))
    assert not (tmp_path / "store" / "manifest.json").exists()


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("place", "words"),
    [
        (5, "a store or model needs a path or a URL, but got 5 (int)"),
        (None, "a store or model needs a path or a URL, but got None"),
        (b"store", "a store or model needs a path or a URL, but got b'store' (bytes)"),
        ("", "a store needs a path or a URL, but got an empty one"),
        ("nofs://bucket/store", "nofs://bucket/store cannot be reached: Protocol not known: nofs"),
        ("~nobody-here/store", "~nobody-here/store is not a path"),
    ],
)
def test_place__refused_by_name(place: Any, words: str) -> None:
    uses: list[Callable[[Any], Any]] = [
        open_store,
        PlackettLuceMixture.load,
        lambda place: simulate(place, n_rankings=10, n_items=3),
        lambda place: ingest(ROWS, place),
    ]
    for use in uses:
        with pytest.raises(SettingsError, match=re.escape(words)):
            use(place)


# --- words -----------------------------------------------------------------------------------------------


def test_shown__short_and_safe() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Silent()) == "a value (Silent)"
    assert shown(Fraction(1, 2)) == "Fraction(1, 2) (Fraction)"
    assert len(shown(list(range(1_000)))) < 80
    assert shown(Path("a")) == "PosixPath('a') (PosixPath)"
