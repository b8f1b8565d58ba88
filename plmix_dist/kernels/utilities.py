"""Choices with utilities that are linear in parameters: sums over rows, scores of persons and the observed information.

The utility of an entry of a row is that of its alternative, `design[item] @ coefficients`, plus that of its own
features. An alternative is chosen with probability exp(utility) / sum of exp(utility) over all that are left. So all
derivatives are those of conditional logits: what was chosen less what was expected, times columns.

The shares of a person are a multinomial logit on its covariates, which begin with 1; without covariates everybody has
the same. In NumPy: rows of one shape, which list and order the same number of items, are computed side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.memberships import Memberships, memberships
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.choice_models import ChoiceModel, listing_all
from plmix_dist.rankings.groups import log_shares_at, row_runs, weights_within
from plmix_dist.threads import single_thread

# A run of rows has at most this many numbers in its table of columns.
_MOST_NUMBERS = 1 << 21


class LinearPoint(NamedTuple):
    """Parameters of a mixture whose utilities are linear."""

    # (n_alternatives, n_item_columns): the columns of each alternative; none where rows have features alone.
    design: Floats
    # (n_components, n_columns): coefficients of the columns of alternatives, then of features.
    coefficients: Floats
    # (n_components, 1 + n_covariates): intercepts and coefficients of the logits of shares.
    share_coefficients: Floats

    @property
    def log_worths(self) -> Floats:
        """(n_components, n_alternatives): utilities of alternatives."""
        found: Floats = self.coefficients[:, : self.design.shape[1]] @ self.design.T
        return found

    @property
    def feature_coefficients(self) -> Floats:
        """(n_components, n_features)."""
        return self.coefficients[:, self.design.shape[1] :]

    def readied(self, block: RankingBlock) -> RankingBlock:
        """A block whose rows list all that is on offer, with utilities of features and shares of persons."""
        block = listing_all(block)
        covariates = np.zeros((block.n_rankings, 0)) if block.covariates is None else block.covariates
        return self.with_utilities(block.replace(log_shares=log_shares_at(covariates, self.share_coefficients)))

    def with_utilities(self, block: RankingBlock) -> RankingBlock:
        """A block with utilities of features; an error if it has not as many features as there are coefficients."""
        n, n_given = self.feature_coefficients.shape[1], 0 if block.features is None else block.features.shape[1]
        if n != n_given:
            raise SettingsError(
                f"this model has coefficients of {n} features, but the rankings have {n_given}; give the features of "
                "these rankings, in the same order (features=)"
            )
        if block.features is None:
            return block
        return block.replace(utilities=np.asarray(block.features, np.float64) @ self.feature_coefficients.T)


class _Shape(NamedTuple):
    """Rows that list and order the same number of items: their numbers (n,), their entries (n, length), choices."""

    rows: NDArray[np.int64]
    entries: NDArray[np.int64]
    n_choices: int


def _shapes(block: RankingBlock) -> Iterator[_Shape]:
    n_listed = block.n_listed.astype(np.int64)
    n_choices = np.minimum(block.n_ordered, n_listed - 1)
    kind = n_listed * (int(n_listed.max(initial=0)) + 1) + n_choices
    for one in np.unique(kind).tolist():
        rows = np.flatnonzero(kind == one)
        length, chosen = int(n_listed[rows[0]]), int(n_choices[rows[0]])
        if chosen:
            yield _Shape(rows, block.offsets[:-1][rows, None] + np.arange(length), chosen)


class _Chances(NamedTuple):
    """What the utilities of a block say of its rows."""

    # (n_rankings, n_components): log Pr(row | component).
    logs: Floats
    # (n_entries, n_components): how often an entry was chosen, less how often that was expected.
    residuals: Floats
    # Of every shape: (n_choices, length, n, n_components), the chances of all entries in each choice; where asked for.
    by_choice: list[tuple[_Shape, Floats]]


def _chances(block: RankingBlock, log_worths: Floats, *, by_choice: bool = False) -> _Chances:
    """Choices at utilities: those of alternatives (n_components, n_alternatives) plus those that the block has."""
    utilities = np.ascontiguousarray(log_worths.T)[block.items]
    if block.utilities is not None:
        utilities += block.utilities
    n_components = len(log_worths)
    logs, residuals = np.zeros((block.n_rankings, n_components)), np.zeros((len(block.items), n_components))
    kept = []
    for shape in _shapes(block):
        # (length, n, n_components): sums over places go along memory.
        u, n_choices = utilities[shape.entries.T], shape.n_choices
        left = np.empty((n_choices, *u.shape[1:]))  # logarithms of the sums over all that are left
        top = u.max(axis=0)
        with np.errstate(divide="ignore"):
            left[-1] = np.log(np.exp(u[n_choices - 1 :] - top).sum(axis=0)) + top
        far = ~np.isfinite(left[-1])
        if far.any():  # what is left is that much less than what was chosen
            left[-1][far] = np.logaddexp.reduce(u[n_choices - 1 :], axis=0)[far]
        for choice in range(n_choices - 2, -1, -1):
            left[choice] = np.logaddexp(left[choice + 1], u[choice])
        logs[shape.rows] = (u[:n_choices] - left).sum(axis=0)
        offers = np.logaddexp.accumulate(-left, axis=0)
        places = np.arange(len(u))
        expected = np.exp(u + offers[np.minimum(places, n_choices - 1)])
        residuals[shape.entries.T] = (places < n_choices)[:, None, None] - expected
        if by_choice:
            chances = np.exp(u - left[:, None])
            chances[places < np.arange(n_choices)[:, None]] = 0.0  # chosen before
            kept.append((shape, chances))
    return _Chances(logs, residuals, kept)


def _utility_logs(block: RankingBlock, log_worths: Floats) -> Floats:
    """(n_rankings, n_components): log Pr(row | component), of rows with utilities of their own, if they have any.

    Examples
    --------
    >>> from plmix_dist.rankings import Floats, RankingBlock
    >>> _utility_logs(RankingBlock.from_array([[1, 0]]), np.log([[0.25, 0.75]])).round(4).tolist()
    [[-0.2877]]
    """
    return _chances(listing_all(block), log_worths).logs


class LinearRows(NamedTuple):
    """Parameters as row functions take them where utilities are linear, in place of `Prepared`."""

    choices: ChoiceModel | None
    point: LinearPoint
    feature_names: tuple[str, ...] = ()  # those of rows, in the order of their coefficients
    n_orders: int = 0  # ties are not outcomes

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.point.coefficients)

    @property
    def log_shares(self) -> Floats:
        """(n_components,): of persons of whom nothing is known."""
        intercepts = self.point.share_coefficients[:, 0]
        found: Floats = intercepts - np.logaddexp.reduce(intercepts)
        return found

    def logs(self, block: RankingBlock) -> Floats:
        """(n_rankings, n_components): log Pr(row | component)."""
        if self.choices is None:
            return _utility_logs(self.point.with_utilities(block), self.point.log_worths)
        rows = self.choices.rows(block.replace(groups=None, within=None, weights=None))
        assert rows.groups is not None
        logs = rows.row_weights[:, None] * _utility_logs(rows, self.point.log_worths)
        return np.stack([np.bincount(rows.groups, own, block.n_rankings) for own in logs.T], axis=1)


class LinearSums(NamedTuple):
    """Sums over rows. Those of two blocks can be added."""

    # (): of all persons.
    log_likelihood: Floats
    # (n_components, n_columns), (n_components, 1 + n_covariates): derivatives of it in all coefficients.
    gradient: Floats
    share_gradient: Floats
    # (n_components,): sums of w q.
    shares: Floats


def linear_sums(block: RankingBlock, point: LinearPoint) -> LinearSums:
    """The log-likelihood of a block and its gradient."""
    with single_thread():
        runs = [_run_sums(run, point) for run in _runs(block, point)]
    return LinearSums(*(np.sum(values, axis=0) for values in zip(*runs, strict=True)))


def _run_sums(block: RankingBlock, point: LinearPoint) -> LinearSums:
    block = point.readied(block)
    found = _chances(block, point.log_worths)
    at = memberships(block, found.logs, None)
    residuals = found.residuals * (block.row_weights[:, None] * at.by_row)[block.row_of_item()]
    by_item: Floats = np.array([np.bincount(block.items, own, block.n_items) for own in residuals.T], np.float64)
    gradient = by_item @ point.design
    if block.features is not None:
        gradient = np.concatenate([gradient, residuals.T @ np.asarray(block.features, np.float64)], axis=1)
    columns, shares = _share_columns(block, at)
    weighted = at.weights[:, None] * at.posteriors
    return LinearSums(
        np.array((at.weights * at.log_likelihoods).sum()),
        gradient,
        (weighted - at.weights[:, None] * shares).T @ columns,
        weighted.sum(axis=0),
    )


def _runs(block: RankingBlock, point: LinearPoint) -> Iterator[RankingBlock]:
    """Runs of rows whose tables of columns fit into a little memory."""
    longest = block.n_items if block.below.any() else int(block.n_listed.max(initial=1))
    return row_runs(block, max(1, _MOST_NUMBERS // (longest * max(1, point.coefficients.shape[1]))))


def _share_columns(block: RankingBlock, at: Memberships) -> tuple[Floats, Floats]:
    """(n_persons, 1 + n_covariates): 1 and the covariates of each person; and its shares (n_persons, n_components)."""
    starts = block.group_starts
    assert block.log_shares is not None
    covariates = np.zeros((len(at.weights), 0)) if block.covariates is None else block.covariates[starts]
    return np.column_stack([np.ones(len(at.weights)), covariates]), np.exp(block.log_shares[starts])


class LinearInformation(NamedTuple):
    """Sums over persons, in all coefficients of choices, component by component, then of shares. They can be added."""

    # observed, products (d, d): minus the second derivatives of the log-likelihood, and products of scores.
    observed: Floats
    products: Floats
    # (d,): the diagonal of the information if all components were known; and the gradient.
    known: Floats
    gradient: Floats
    # (n_components, n_components * (1 + n_covariates)): derivatives of sums of shares in their coefficients.
    share_slopes: Floats
    # (): of all persons.
    weight: Floats


def linear_information(block: RankingBlock, point: LinearPoint) -> LinearInformation:
    """The observed information of a block (Louis 1982): that of known components, less what is missing."""
    with single_thread():
        runs = [_run_information(run, point) for run in _runs(block, point)]
    return LinearInformation(*(np.sum(values, axis=0) for values in zip(*runs, strict=True)))


def person_scores(block: RankingBlock, point: LinearPoint) -> tuple[Memberships, Floats]:
    """Memberships, and the scores (n_persons, n_components, n_columns) of choices if the component were known."""
    with single_thread():
        block = point.readied(block)
        found = _chances(block, point.log_worths)
        return memberships(block, found.logs, None), _scores(block, found, _columns(block, point))


def _columns(block: RankingBlock, point: LinearPoint) -> Floats:
    """(n_entries, n_columns): the columns of every entry."""
    own = point.design[block.items]
    return own if block.features is None else np.concatenate([own, np.asarray(block.features, np.float64)], axis=1)


def _scores(block: RankingBlock, found: _Chances, columns: Floats) -> Floats:
    by_row = [np.add.reduceat(own[:, None] * columns, block.offsets[:-1], axis=0) for own in found.residuals.T]
    scores = np.stack(by_row, axis=1)
    if block.groups is None:
        return scores
    scores *= weights_within(block)[:, None, None]
    return np.add.reduceat(scores, np.flatnonzero(block.group_starts), axis=0)


def _run_information(block: RankingBlock, point: LinearPoint) -> LinearInformation:
    block = point.readied(block)
    found = _chances(block, point.log_worths, by_choice=True)
    at, columns = memberships(block, found.logs, None), _columns(block, point)
    n_components, n_columns = point.coefficients.shape
    scores, (of_persons, shares) = _scores(block, found, columns), _share_columns(block, at)
    n_worths, weights, n_shares = n_components * n_columns, at.weights, n_components * of_persons.shape[1]
    mean = np.concatenate(
        [
            (at.posteriors[:, :, None] * scores).reshape(len(weights), n_worths),
            ((at.posteriors - shares)[:, :, None] * of_persons[:, None]).reshape(len(weights), n_shares),
        ],
        axis=1,
    )
    products = mean.T @ (weights[:, None] * mean)
    complete, observed = np.zeros((2, len(products), len(products)))
    row_weights = block.row_weights[:, None] * at.by_row
    for k in range(n_components):
        own = slice(k * n_columns, (k + 1) * n_columns)
        member = weights * at.posteriors[:, k]
        complete[own, own] = _variance_of_choices(found, columns, row_weights[:, k], k)
        # The logits of shares if the component is k.
        known = (((np.arange(n_components) == k) - shares)[:, :, None] * of_persons[:, None]).reshape(-1, n_shares)
        weighted = member[:, None] * known
        observed[own, own] -= scores[:, k].T @ (member[:, None] * scores[:, k])
        observed[own, n_worths:] -= scores[:, k].T @ weighted
        observed[n_worths:, n_worths:] -= known.T @ weighted
    observed[n_worths:, :n_worths] = observed[:n_worths, n_worths:].T
    of_shares = complete[n_worths:, n_worths:] = _variance_of_shares(shares, of_persons, weights)
    return LinearInformation(
        complete + observed + products,
        products,
        np.diag(complete).copy(),
        weights @ mean,
        of_shares[:: of_persons.shape[1]].copy(),
        np.array(weights.sum()),
    )


def _variance_of_choices(found: _Chances, columns: Floats, weights: Floats, component: int) -> Floats:
    """(n_columns, n_columns): the variance of the columns of what is chosen, times weights (n_rankings,), summed."""
    expected, total = np.zeros(len(columns)), np.zeros((columns.shape[1],) * 2)
    for shape, chances in found.by_choice:
        own = chances[..., component]
        expected[shape.entries.T] = (own * weights[shape.rows]).sum(axis=0)
        means = (own.transpose(2, 0, 1) @ columns[shape.entries]).reshape(-1, columns.shape[1])  # of each choice
        total -= means.T @ (means * np.repeat(weights[shape.rows], shape.n_choices)[:, None])
    return total + columns.T @ (expected[:, None] * columns)


def _variance_of_shares(shares: Floats, columns: Floats, weights: Floats) -> Floats:
    """(n, n): the sum of w (diag(s) - s s') x z z'."""
    n_components, n_columns = shares.shape[1], columns.shape[1]
    found = np.zeros((n_components, n_columns, n_components, n_columns))
    for one in range(n_components):
        for other in range(n_components):
            variance = weights * shares[:, one] * ((one == other) - shares[:, other])
            found[one, :, other] = columns.T @ (variance[:, None] * columns)
    return found.reshape(n_components * n_columns, -1)
