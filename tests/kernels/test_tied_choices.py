"""Ties as outcomes of choices: the compiled kernel, and information in NumPy, against enumeration of all sets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import prepare, row_posteriors
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.tied_choices import tie_information, tie_logs, tie_statistics
from plmix_dist.rankings import Ranking, RankingBlock
from tests.helpers import tie_oracle
from tests.helpers.tie_oracle import Floats

CASES = [(2, 2, 1, "absent"), (5, 2, 3, "absent"), (5, 3, 5, "below"), (6, 4, 1, "below")]


def drawn(
    seed: int, n_items: int, order: int, n_components: int, kind: str
) -> tuple[RankingBlock, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    block = tie_oracle.drawn_rows(rng, 20, n_items, order, kind)
    worths, shares = rng.normal(size=(n_components, n_items)), rng.dirichlet(np.ones(n_components))
    return block, worths, shares, rng.normal(size=(n_components, order - 1))


@pytest.mark.parametrize(("n_items", "order", "n_components", "kind"), CASES)
@pytest.mark.parametrize("with_groups", [False, True])
def test_tie_statistics__enumeration(n_items: int, order: int, n_components: int, kind: str, with_groups: bool) -> None:
    block, worths, shares, log_ties = drawn(1, n_items, order, n_components, kind)
    if with_groups:
        block = block.replace(groups=np.arange(block.n_rankings) // 3)
    params = prepare(worths, np.log(shares), log_ties)
    rows = [block.row(row) for row in range(block.n_rankings)]
    logs = np.array([[tie_oracle.row_log(row, *own) for own in zip(worths, log_ties, strict=True)] for row in rows])
    assert_allclose(tie_logs(block, params), logs, atol=1e-12)
    found = tie_statistics(block, params)
    total = tie_oracle.log_likelihood(block, worths, shares, log_ties)
    assert float(found.log_likelihood) == pytest.approx(total, rel=1e-12)
    by_row = row_posteriors(block, params)[1] * block.row_weights[:, None]
    for k in range(n_components):
        parts = [tie_oracle.expected(row, worths[k], log_ties[k]) for row in rows]
        for name, values in zip(
            ("wins", "expected_wins", "ties", "expected_ties"), zip(*parts, strict=True), strict=True
        ):
            assert_allclose(getattr(found, name)[k], by_row[:, k] @ np.array(values), atol=1e-10)


@pytest.mark.parametrize(("n_items", "order", "n_components", "kind"), CASES)
def test_tie_statistics__gradient_by_differences(n_items: int, order: int, n_components: int, kind: str) -> None:
    block, worths, shares, log_ties = drawn(2, n_items, order, n_components, kind)
    found = tie_statistics(block, prepare(worths, np.log(shares), log_ties))
    step = 1e-6
    for values, gradient in ((worths, found.wins - found.expected_wins), (log_ties, found.ties - found.expected_ties)):
        for place in np.ndindex(values.shape):
            sides = []
            for sign in (1, -1):
                values[place] += sign * step
                sides.append(float(tie_statistics(block, prepare(worths, np.log(shares), log_ties)).log_likelihood))
                values[place] -= sign * step
            assert gradient[place] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=2e-7)


@pytest.mark.parametrize(("n_items", "order", "n_components", "kind"), CASES)
def test_tie_information__differences_of_scores(n_items: int, order: int, n_components: int, kind: str) -> None:
    """With components known, the information is minus the derivative of the gradient."""
    block, worths, shares, log_ties = drawn(3, n_items, order, n_components, kind)
    posteriors = np.random.default_rng(4).dirichlet(np.ones(n_components), block.n_rankings)

    def gradient(params: Prepared) -> Floats:
        scores, _ = tie_information(block, params, posteriors)
        return np.asarray((scores * block.row_weights[:, None, None]).sum(axis=0))

    _, complete = tie_information(block, prepare(worths, np.log(shares), log_ties), posteriors)
    step, parameters = 1e-6, np.concatenate([worths, log_ties], axis=1)
    for place in range(parameters.shape[1]):
        sides = []
        for sign in (1, -1):
            moved = parameters.copy()
            moved[:, place] += sign * step
            sides.append(gradient(prepare(moved[:, :n_items], np.log(shares), moved[:, n_items:])))
        assert_allclose(complete[:, place], (sides[1] - sides[0]) / (2 * step), atol=1e-7)


def test_tie_statistics__far_apart() -> None:
    """A log-range of 650: no sum or product leaves float64."""
    worths = np.array([[-325.0, -1.0, 0.0, 325.0], [325.0, 1.0, 0.0, -325.0]])
    rows = [Ranking(((0, 1), (2,), (3,)), (), "absent", 1.0), Ranking(((3,), (1, 2), (0,)), (), "absent", 1.0)]
    block = RankingBlock.from_rows(rows, n_items=4)
    params = prepare(worths, np.log([0.5, 0.5]), np.array([[0.3], [0.3]]))
    found = tie_statistics(block, params)
    assert all(np.isfinite(value).all() for value in found)
    # By hand: two items out of four, then one out of two.
    p = worths[1]
    sets = [p[i] for i in range(4)] + [0.3 + (p[i] + p[j]) / 2 for i in range(4) for j in range(i)]
    last = np.logaddexp.reduce([p[2], p[3], 0.3 + (p[2] + p[3]) / 2])
    expected = 0.3 + (p[0] + p[1]) / 2 - np.logaddexp.reduce(sets) + p[2] - last
    assert tie_logs(block, params)[0, 1] == pytest.approx(expected, rel=1e-12)


def test_tie_logs__more_tied_than_the_model_has() -> None:
    block = RankingBlock.from_rows([Ranking(((0, 1, 2),), (), "absent", 1.0)], n_items=3)
    with pytest.raises(SettingsError, match=r"a ranking ties 3 items, .* fit it with ties=Davidson\(order=3\)"):
        tie_logs(block, prepare(np.zeros((1, 3)), np.zeros(1), np.zeros((1, 1))))
