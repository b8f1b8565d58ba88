"""Mixtures whose utilities are linear: what users say of features and choices, and what a fit makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from plmix_dist.errors import DamagedStoreError, SettingsError
from plmix_dist.fitting.linear import Columns, Layout
from plmix_dist.fitting.linear_fit import LinearEnd, LinearModel
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.kernels.utilities import LinearPoint
from plmix_dist.passes import Rankings
from plmix_dist.prediction.choices import Reading, choice_probabilities, item_numbers
from plmix_dist.rankings import Floats
from plmix_dist.rankings.choice_models import CHOICES, FIND_SLATES, ChoiceModel, SlateChoices, Slates, contrasts
from plmix_dist.rankings.features import Features, Table, item_lines, item_table, refuse_twice, row_table
from plmix_dist.rankings.ties import KEPT

PLACKETT_LUCE = "plackett-luce"
# Of a worth of an item's own: the curvature of one win and one loss against an equal ghost.
_PRECISION_PER_ALPHA = 0.5


@dataclass(frozen=True)
class Terms:
    """What utilities are made of, beside the choices of rows: worths of items, features of items and of rows."""

    choices: ChoiceModel | None
    item_names: tuple[str, ...]
    intercepts: bool
    items: Table | None = None
    row_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, choices: Any, item_features: Any, features: Any, rankings: Rankings) -> Terms | None:
        """The terms that a fit asks for; None for a plain mixture."""
        model = _choice_model(choices, rankings.item_names)
        of_items, of_rows = Features.of(item_features), Features.of(features)
        if model is None and of_items is None and of_rows is None:
            return None
        if model is not None and (of_items is not None or of_rows is not None):
            raise SettingsError(f"choices={choices!s} take no features; leave out one of them")
        given = [one for one in (of_items, of_rows) if one is not None]
        found = cls(
            model,
            rankings.item_names,
            model is not None or any(one.intercepts for one in given),
            None if of_items is None else item_table(of_items, rankings.item_names),
            rankings.feature_names,
        )
        refuse_twice("column", found.names, "item_features and features")
        return found

    @property
    def is_plain(self) -> bool:
        """Whether the fitted mixture is one of Plackett-Luce models: its worths say all."""
        return self.choices is None and not self.row_names

    @property
    def keeps_ties(self) -> bool:
        """Whether ties mark what is best and worst, and do not mean equality."""
        return self.choices is not None and not isinstance(self.choices, SlateChoices)

    @property
    def setting(self) -> str:
        """What `choices` was, as a saved model has it: of slates, the items of each."""
        if not isinstance(self.choices, SlateChoices):
            return PLACKETT_LUCE if self.choices is None else self.choices.name
        of_slate: dict[str, list[str]] = {name: [] for name in self.choices.names}
        for item, slate in zip(self.item_names, self.choices.slate_of, strict=True):
            of_slate[self.choices.names[slate]].append(item)
        return str(Slates(of_slate))

    @property
    def described(self) -> str:
        """What a model that is not plain has, for errors."""
        return "features of rows" if self.choices is None else f"choices={self.choices.name!r}"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.item_names)

    @property
    def design(self) -> Floats:
        """(n_alternatives, n_item_columns): the columns of alternatives."""
        if self.choices is not None:
            return self.choices.design(self.n_items)
        parts = [contrasts(self.n_items)] if self.intercepts else []
        if self.items is not None:
            parts.append(self.items.values - self.items.values.mean(axis=0))
        return np.concatenate([np.zeros((self.n_items, 0)), *parts], axis=1)

    @property
    def n_worths(self) -> int:
        """How many columns are worths of items of their own, or of slates; they come first."""
        if self.choices is not None:
            return int(self.design.shape[1])
        return self.n_items - 1 if self.intercepts else 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        own = tuple(f"the worths of items, {number + 1}" for number in range(self.n_worths))
        return (*own, *(self.items.names if self.items is not None else ()), *self.row_names)

    def model(self, item_features: Any, features: Any, alpha: float) -> LinearModel:
        """What the fit takes."""
        names, ridge = self.names, np.zeros(len(self.names))
        shared, standardised = np.zeros((2, len(names)), np.bool_)
        given: dict[str, str] = {}
        ridge[: self.n_worths] = alpha * _PRECISION_PER_ALPHA
        first = self.n_worths
        for what, one, n in (
            ("item_features", Features.of(item_features), 0 if self.items is None else len(self.items.names)),
            ("features", Features.of(features), len(self.row_names)),
        ):
            place = slice(first, first + n)
            if one is not None:
                ridge[place], shared[place], standardised[place] = one.ridge, one.shared, one.standardised
            given |= dict.fromkeys(names[place], what)
            first += n
        if self.intercepts and self.items is not None and alpha == 0:
            raise SettingsError(
                "worths of items and coefficients of item_features cannot be told apart without a prior; choose alpha "
                "above 0, or leave out intercepts"
            )
        return LinearModel(self.design, names, ridge, shared, standardised, self.n_items, given)

    def of_rankings(self, rankings: Rankings) -> Rankings:
        """The rankings with the choices of their rows in place of the rows."""
        if self.choices is None:
            return rankings
        n = self.choices.n_alternatives(self.n_items)
        names = self.item_names if n == self.n_items else tuple(map(str, range(n)))
        ties = KEPT if self.keeps_ties else rankings.ties
        return replace(rankings, n_items=n, item_names=names, choices=self.choices, ties=ties)

    @property
    def worth_columns(self) -> Floats:
        """(n_items, n_columns): the columns that log-worths of items, of mean zero, are made of; they come first."""
        columns = contrasts(self.n_items) if self.keeps_ties else self.design[: self.n_items]
        centred: Floats = columns - columns.mean(axis=0)
        return centred

    def log_worths(self, coefficients: Floats) -> Floats:
        """(n_components, n_items): those of items, of mean zero."""
        columns = self.worth_columns
        worths: Floats = coefficients[:, : columns.shape[1]] @ columns.T
        worths -= worths.mean(axis=1, keepdims=True)
        return worths

    def cohesion(self, coefficients: Floats) -> Floats | None:
        """(n_components, n_slates): the probability of each slate while all have items left."""
        if not isinstance(self.choices, SlateChoices):
            return None
        found: Floats = softmax(coefficients @ self.design[self.n_items :].T, axis=1)
        return found

    def reading(self, end: LinearEnd) -> Reading:
        """How the log-worths of a model that is not plain are read."""
        worths, first = self.log_worths(end.point.coefficients), choice_probabilities(self.first_places(end))
        if isinstance(self.choices, SlateChoices):
            return Reading("slates", first, first, tuple(self.choices.names[slate] for slate in self.choices.slate_of))
        if self.choices is not None:
            return Reading("scale", worths, None)
        return Reading("equal", worths, first) if self.design.shape[1] else Reading("none", worths, None)

    def first_places(self, end: LinearEnd) -> Floats:
        """(n_components, n_items): log-worths; of slates log-probabilities, of a slate and then of an item in it."""
        cohesion, worths = self.cohesion(end.point.coefficients), self.log_worths(end.point.coefficients)
        if isinstance(self.choices, SlateChoices) and cohesion is not None:
            for slate, share in enumerate(cohesion.T):
                own = np.array(self.choices.slate_of) == slate
                worths[:, own] += np.log(share)[:, None] - logsumexp(worths[:, own], axis=1, keepdims=True)
        return worths

    def offered(
        self, end: LinearEnd, items: Any, item_features: Any, features: Any
    ) -> tuple[Floats, NDArray[Any], Floats]:
        """Utilities (n_components, n_offered) of one choice; names and features, of both kinds, of what is offered."""
        coefficients, n_rows, of_rows = end.point.coefficients, len(self.row_names), _lines(features, self.row_names)
        if isinstance(self.choices, SlateChoices) and items is not None:
            raise SettingsError("choices of slates are of all items; leave out offered")
        new = Features.of(item_features)
        if new is None:
            numbers = np.arange(self.n_items) if items is None else item_numbers("offered", items, self.item_names)
            worths, names = self.first_places(end)[:, numbers], np.array(self.item_names, object)[numbers]
            levels = np.zeros((len(numbers), 0)) if self.items is None else self.items.values[numbers]
        elif items is not None:
            raise SettingsError("item_features say what is offered, one line each; leave out offered")
        elif self.items is None or self.intercepts:
            raise SettingsError(
                "new items are known by features of items alone; fit with item_features and without intercepts"
            )
        else:
            names, levels = _new_items(new, self.items.names)
            worths = coefficients[:, : levels.shape[1]] @ (levels - self.items.values.mean(axis=0)).T
        if of_rows.shape != (len(names) if n_rows else 0, n_rows):
            raise SettingsError(
                f"this model has coefficients of {n_rows} features of rows; give those of what is offered, a line for "
                f"each of {len(names)}"
            )
        if n_rows:
            worths, levels = worths + coefficients[:, -n_rows:] @ of_rows.T, np.concatenate([levels, of_rows], axis=1)
        return worths, names, levels

    def drawn(self, end: LinearEnd, component: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """(n, n_items): a ballot of each component drawn by slates; an error for other choices."""
        cohesion, n, slates = self.cohesion(end.point.coefficients), len(component), self.choices
        if cohesion is None or not isinstance(slates, SlateChoices):
            raise SettingsError(
                f"sample draws rankings of plain models and of slates, and this one has {self.described}; "
                "choice_probabilities has the chances of one choice"
            )
        slate_of = np.array(slates.slate_of)
        keys = self.log_worths(end.point.coefficients)[component] + rng.gumbel(size=(n, self.n_items))
        own = np.argsort(-keys, axis=1)  # in every slate, its items in this order
        left = np.tile(np.bincount(slate_of), (n, 1))
        orders, rows = np.empty((n, self.n_items), np.int64), np.arange(n)
        places = np.argsort(slate_of[own], axis=1, kind="stable")
        first = np.cumsum(left, axis=1) - left
        taken = np.zeros_like(left)
        for place in range(self.n_items):
            open_ = np.where(left > taken, np.log(cohesion[component]), -np.inf)
            slate = np.argmax(open_ + rng.gumbel(size=open_.shape), axis=1)
            orders[:, place] = own[rows, places[rows, first[rows, slate] + taken[rows, slate]]]
            taken[rows, slate] += 1
        return orders

    def elasticities(
        self, end: LinearEnd, shares: Floats, column: str, items: Any, item_features: Any, features: Any
    ) -> Floats:
        """(n_offered, n_offered): see the method of the estimator."""
        names = self.names
        if column not in names[self.n_worths :]:
            raise SettingsError(f"{column!r} is not a feature of this model; there are {list(names[self.n_worths :])}")
        worths, _, table = self.offered(end, items, item_features, features)
        place, chances = names.index(column), softmax(worths, axis=1)
        slopes = end.point.coefficients[:, [place]] * table[:, place - self.n_worths]  # (n_components, n_offered)
        joint = shares[:, None] * chances
        own = np.diag((joint * slopes).sum(axis=0)) - np.einsum("ki,kj->ij", joint, chances * slopes)
        found: Floats = own / joint.sum(axis=0)[:, None]
        return found

    # Saving: names and numbers; the rest follows from the settings of the model.

    def record(self, layout: Layout) -> dict[str, Any]:
        """What JSON holds of it."""
        return {
            "intercepts": self.intercepts,
            "item_features": [] if self.items is None else list(self.items.names),
            "features": list(self.row_names),
            "shared": layout.columns.shared.tolist(),
            "share_ridge": layout.share_ridge,
            "shares_are_fixed": layout.fixed_log_shares is not None,
        }

    def arrays(self, end: LinearEnd) -> dict[str, Floats]:
        """Its arrays, by the names that a saved model has."""
        columns, units = end.layout.columns, end.layout.units
        found = {"coefficients": end.point.coefficients, "column_scale": columns.scale, "column_ridge": columns.ridge}
        found["share_intercepts"] = end.point.share_coefficients
        found |= {"unit_centre": units.centre, "unit_scale": units.scale}
        return found if self.items is None else found | {"item_features": self.items.values}


def restored(
    choices: Any, record: Mapping[str, Any], arrays: Mapping[str, Floats], item_names: tuple[str, ...], where: str
) -> tuple[Terms, LinearEnd]:
    """The terms and the end of a saved model; an error if its parts do not fit together."""
    from plmix_dist.fitting.covariates import Units

    try:
        names = tuple(record["item_features"])
        items = Table(arrays["item_features"], names) if names else None
        model = _choice_model(choices, item_names)
        terms = Terms(model, item_names, bool(record["intercepts"]), items, tuple(record["features"]))
        shared = np.array(record["shared"], np.bool_)
        columns = Columns(terms.design, terms.names, shared, arrays["column_scale"], arrays["column_ridge"])
        units = Units(arrays["unit_centre"], arrays["unit_scale"])
        shares = arrays["share_intercepts"]
        point = LinearPoint(terms.design, arrays["coefficients"], shares)
        fixed = shares[:, 0] if record["shares_are_fixed"] else None
        layout = Layout(columns, len(point.coefficients), units, fixed, float(record["share_ridge"]))
        n = len(terms.names)
        expected = (len(shares), n), (n,), (n,), (n,), (len(shares), 1 + len(units.centre))
        found = point.coefficients.shape, columns.scale.shape, columns.ridge.shape, shared.shape, shares.shape
        if expected != found or units.scale.shape != units.centre.shape:
            raise ValueError(f"shapes {found}, where {expected} are expected")
    except (KeyError, TypeError, ValueError, SettingsError) as error:
        raise DamagedStoreError(f"the model at {where} cannot be read: its coefficients are damaged: {error}") from None
    return terms, LinearEnd(point, layout)


def _choice_model(choices: Any, item_names: tuple[str, ...]) -> ChoiceModel | None:
    """The choice model that a setting names; None for plain Plackett-Luce."""
    if choices == PLACKETT_LUCE:
        return None
    choices = choices_of(choices)
    return choices.of_items(item_names) if isinstance(choices, Slates) else CHOICES[choices]


def choices_of(setting: Any) -> Any:
    """The value of `choices` that a word, a JSON text or the path of one stands for."""
    if not isinstance(setting, str) or setting == PLACKETT_LUCE or setting in CHOICES:
        return setting
    if setting == FIND_SLATES:
        return Slates(None)
    try:
        return Slates(json.loads(setting if setting.lstrip().startswith("{") else Path(setting).read_text()))
    except (OSError, ValueError) as error:
        raise SettingsError(f"choices={setting!r} is no JSON with the items of each slate: {error}") from None


def _lines(given: Any, known: tuple[str, ...]) -> Floats:
    """The lines of features of rows that a user gave, in the columns of the fit; none for None."""
    features = Features.of(given)
    return np.zeros((0, 0)) if features is None else row_table(features).of_fit(known).values


def _new_items(given: Features, known: tuple[str, ...]) -> tuple[NDArray[Any], Floats]:
    """The names of new items, or "new 0" and so on where lines are just numbered, and their features."""
    labels, table = item_lines(given)
    numbers = range(len(table.values))
    if labels is None or labels == [str(number) for number in numbers]:
        labels = [f"new {number}" for number in numbers]
    return np.array(labels, object), table.of_fit(known, "item_features").values


def check_linear(settings: FitSettings) -> None:
    """An error for settings that fits of linear utilities do not have."""
    for name, plain in (("noise", False), ("em", "fused"), ("m_step", "auto"), ("accelerate", True)):
        if getattr(settings, name) != plain:
            raise SettingsError(
                f"{name}={getattr(settings, name)!r} does not go together with features, slates, best-worst and "
                f"maxdiff, which are fitted by Newton steps; leave {name} out"
            )
    if settings.ties not in ("auto", "expand", "half", "half-last"):
        raise SettingsError(
            f"ties={settings.ties!r} does not go together with features, slates, best-worst and maxdiff; choose "
            'ties="expand" or "half"'
        )


def linear_start(init: Any, terms: Terms, n_components: int) -> LinearPoint | None:
    """The point that `init` gives: that of a fitted model of the same terms; None for a search."""
    if isinstance(init, str) and init == "spectral":
        return None
    known = getattr(init, "_linear", None)
    if known is None or known[0].names != terms.names or known[0].item_names != terms.item_names:
        raise SettingsError(
            "with features, slates, best-worst and maxdiff, init is a fitted model of the same items and columns, or "
            "left out: starts are then made from the scores of persons"
        )
    found: LinearPoint = known[1].point
    if len(found.coefficients) != n_components:
        raise SettingsError(f"init has {len(found.coefficients)} components, but n_components is {n_components}")
    return found


def bloc_config(model: Any, n_voters: int, slates: Any) -> Any:
    """A mixture as VoteKit's generators of elections take it: shares, cohesion, preferences within slates."""
    try:
        from votekit.ballot_generator import BlocSlateConfig
    except ImportError:
        raise SettingsError('VoteKit is not installed; pip install "plmix-dist[votekit]"') from None
    mixture, known = model._mixture(), None if model._linear is None else model._linear[0].choices
    if (slates is None) != isinstance(known, SlateChoices) or not isinstance(known, SlateChoices | None):
        raise SettingsError("slates are those of the fit; for a plain mixture give the items of each slate, as a dict")
    choices = known if known is not None else Slates(slates).of_items(mixture.item_names)
    names, slate_of = np.array(mixture.item_names, object), np.array(choices.slate_of)
    own = {slate: slate_of == number for number, slate in enumerate(choices.names)}
    worths = softmax(mixture.log_worths, axis=1)
    cohesion = model.cohesion_ if slates is None else np.stack([worths[:, one].sum(axis=1) for one in own.values()], 1)

    def of_blocs(values: Iterable[Any]) -> dict[str, Any]:
        return {f"bloc {number}": value for number, value in enumerate(values, start=1)}

    def preferences(bloc: Floats) -> dict[str, dict[str, float]]:
        return {
            slate: dict(zip(names[one], (bloc[one] / bloc[one].sum()).tolist(), strict=True))
            for slate, one in own.items()
        }

    return BlocSlateConfig(
        n_voters=n_voters,
        slate_to_candidates={slate: names[one].tolist() for slate, one in own.items()},
        bloc_proportions=of_blocs(mixture.shares.tolist()),
        cohesion_mapping=of_blocs(dict(zip(own, one, strict=True)) for one in cohesion.tolist()),
        preference_mapping=of_blocs(map(preferences, worths)),
        silent=True,
    )
