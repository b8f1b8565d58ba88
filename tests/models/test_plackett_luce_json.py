"""Models from arrays, and to and from JSON: nothing is lost on the way."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import plmix_dist as pl
from plmix_dist.errors import SettingsError, UnsupportedFormatError
from tests.helpers import cli_helpers

shell = cli_helpers.shell

NAMES = ["tea", "mate", "milk", "Kaffee, schwarz"]


def model_of_drinks() -> pl.PlackettLuceMixture:
    rng = np.random.default_rng(0)
    rows = [[NAMES[item] for item in rng.permutation(4)[: rng.integers(1, 5)]] for _ in range(60)]
    return pl.PlackettLuceMixture(2, unranked="below", random_state=0).fit(rows)


# --- arrays ----------------------------------------------------------------------------------------------


@given(arrays.arrays(np.float64, (2, 3), elements=st.floats(-50, 50)), st.floats(0.01, 0.99))
def test_arrays__a_model_of_given_parameters_has_the_probabilities_of_the_formula(log_worths, share):
    model = pl.PlackettLuceMixture.from_arrays(log_worths, [share, 1 - share])
    expected = 0.0
    for portion, logs in zip((share, 1 - share), log_worths, strict=True):
        worths = np.exp(logs - logs.max())
        left = np.exp(logs[[2, 0]] - logs[[2, 0]].max())
        expected += portion * worths[1] / worths.sum() * left[0] / left.sum()
    np.testing.assert_allclose(np.exp(model.score_samples([[1, 2, 0]])), [expected], rtol=1e-9, atol=1e-300)
    assert model.shares_[0] == max(share, 1 - share)


def test_arrays__there_and_back_every_bit_is_kept():
    model = model_of_drinks()
    again = pl.PlackettLuceMixture.from_arrays(
        model.log_worths_, model.shares_, model.item_names_, unranked=model.unranked_
    )
    assert again.log_worths_.tobytes() == model.log_worths_.tobytes()
    assert again.shares_.tobytes() == model.shares_.tobytes()
    assert again.score([["tea"]]) == model.score([["tea"]])
    assert again.n_iter_ is None
    assert again.summary().startswith("PlackettLuceMixture: 2 components, 4 items")


def test_arrays__of_another_shape_are_refused():
    with pytest.raises(SettingsError, match=r"expected log-worths of shape \(components, 2\).*got \(1, 3\)"):
        pl.PlackettLuceMixture.from_arrays([[0.0, 1.0, 2.0]], item_names=["tea", "mate"])
    with pytest.raises(SettingsError, match=r"shares must be 1 non-negative numbers that sum to 1, but are \[0.5\]"):
        pl.PlackettLuceMixture.from_arrays([[0.0, 1.0]], [0.5])


# --- JSON ------------------------------------------------------------------------------------------------


def test_json__gives_back_every_bit_and_every_setting():
    model = model_of_drinks()
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    for name in ("log_worths_", "shares_", "_ghosts"):
        assert getattr(again, name).tobytes() == getattr(model, name).tobytes()
    assert again.item_names_ == model.item_names_
    assert again.get_params() == model.get_params()
    assert (again.n_iter_, again.converged_, again.log_likelihood_) == (
        model.n_iter_,
        model.converged_,
        model.log_likelihood_,
    )
    assert again.history_ == model.history_
    assert again.score([["tea"]]) == model.score([["tea"]])  # it remembers what short rows mean
    assert again.to_json() == pl.PlackettLuceMixture.from_json(again.to_json()).to_json()


@given(arrays.arrays(np.float64, (2, 3), elements=st.floats(-700, 700)))
def test_json__of_any_numbers(log_worths):
    model = pl.PlackettLuceMixture.from_arrays(log_worths, [0.7, 0.3])
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    assert again.log_worths_.tobytes() == model.log_worths_.tobytes()


def test_json__of_a_model_with_covariates():
    rng = np.random.default_rng(1)
    column = rng.normal(size=(80, 1))
    model = pl.PlackettLuceMixture(2, random_state=0)
    model.fit([rng.permutation(4) for _ in column], membership_covariates=column)
    again = pl.PlackettLuceMixture.from_json(model.to_json())
    assert again.share_coefficients_.tobytes() == model.share_coefficients_.tobytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shares: 1", "this is not JSON: "),
        ("[1, 2]", "its format is 'list', where 'plmix-model-json' is expected"),
        ('{"format": "plmix-model"}', "load takes the folder of a model"),
        ('{"format": "plmix-model-json", "version": 1}', "it has no item_names"),
    ],
)
def test_json__of_anything_else_is_refused(text, words):
    with pytest.raises(SettingsError, match=words):
        pl.PlackettLuceMixture.from_json(text)


def test_json__that_was_changed_is_refused():
    record = json.loads(model_of_drinks().to_json())
    with pytest.raises(SettingsError, match="4 item names"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"shares": [1.0]}))
    with pytest.raises(SettingsError, match="item names must differ, but 'tea' occurs 4 times"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"item_names": ["tea"] * 4}))
    with pytest.raises(UnsupportedFormatError, match="format version 2"):
        pl.PlackettLuceMixture.from_json(json.dumps(record | {"version": 2}))
