"""The randomised SVD of rows made on the fly, against NumPy, in this process and on workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist.passes import svd as linalg
from plmix_dist.passes.svd import RowMaker, randomized_svd

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist import RankingBlock

    Table = NDArray[np.float64]
from tests.fitting.starts.data import makers_of


class Spy:
    """Makes rows of a matrix, and notes which."""

    def __init__(self, matrix: Table) -> None:
        self.matrix = matrix
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> Table:
        self.asked.append((start, stop))
        return self.matrix[start:stop]

    @property
    def maker(self) -> RowMaker:
        return RowMaker(self, self.matrix.shape)


def multiplied(left: Any, right: Any) -> Any:
    return np.tensordot(left, right, axes=((1,), (0,)))


@pytest.mark.parametrize("slab_rows", [1, 3, 1000])
def test_row_maker__multiplies_on_both_sides(slab_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "_SLAB_BYTES", 8 * 5 * slab_rows)
    rng = np.random.default_rng(0)
    matrix, narrow, wide = rng.normal(size=(11, 5)), rng.normal(size=(5, 2)), rng.normal(size=(2, 11))
    spy = Spy(matrix)
    maker = spy.maker
    turned = np.transpose(maker)  # type: ignore[call-overload]
    assert_allclose(multiplied(maker, narrow), matrix @ narrow, atol=1e-12)
    assert_allclose(multiplied(wide, maker), wide @ matrix, atol=1e-12)
    assert_allclose(multiplied(turned, wide.T), matrix.T @ wide.T, atol=1e-12)
    assert_allclose(multiplied(narrow.T, turned), narrow.T @ matrix.T, atol=1e-12)
    assert (turned.shape, maker.shape, np.transpose(turned).shape) == ((5, 11), (11, 5), (11, 5))
    assert_allclose(multiplied(np.transpose(turned), narrow), matrix @ narrow, atol=1e-12)
    # Five products, each of which asked for every row once and for no more rows at a time than a slab.
    assert sorted(row for start, stop in spy.asked for row in range(start, stop)) == sorted([*range(11)] * 5)
    assert max(stop - start for start, stop in spy.asked) == min(slab_rows, 11)


@pytest.mark.parametrize(
    "use",
    [
        np.sum,
        np.linalg.norm,
        lambda maker: np.concatenate([maker, maker]),
        lambda maker: np.tensordot(maker, np.ones((3, 2)), axes=((0,), (0,))),
        lambda maker: np.dot(maker, np.ones((2, 2))),
    ],
)
def test_row_maker__does_nothing_else(use: Any) -> None:
    with pytest.raises(TypeError, match="no implementation found"):
        use(Spy(np.ones((3, 2))).maker)


def test_row_maker__never_asks_for_the_whole_matrix() -> None:
    n_rows, n_columns = 300, 200_000  # half a gigabyte
    spy = Spy(np.broadcast_to(np.zeros(1), (n_rows, n_columns)))
    multiplied(spy.maker, np.zeros((n_columns, 1)))
    assert max(stop - start for start, stop in spy.asked) * n_columns * 8 <= 1 << 25
    assert sum(stop - start for start, stop in spy.asked) == n_rows


def test_randomized_svd__against_numpy(pair_block: RankingBlock) -> None:
    rows, makers = makers_of(pair_block)
    found = randomized_svd(makers, 14, seed=0)
    _, values, vectors = np.linalg.svd(rows.scaled(0, 9_000), full_matrices=False)
    assert values[1] > 1.5 * values[2], "two directions stand out"
    assert_allclose(found.singular_values[:2], values[:2], rtol=1e-6)
    for k in range(2):
        assert abs(found.vectors[:, k] @ vectors[k]) == pytest.approx(1, abs=1e-6)
        assert found.vectors[np.abs(found.vectors[:, k]).argmax(), k] > 0
    # The rest is noise, of which the size is what matters.
    assert_allclose(found.singular_values[:7], values[:7], rtol=0.03)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(14), atol=1e-9)


@pytest.mark.promise(10)
def test_randomized_svd__same_bits(pair_block: RankingBlock, client: Client, single_worker: Client) -> None:
    makers = makers_of(pair_block)[1]
    bits = set()
    for where in (client, None, single_worker, client, None):
        found = randomized_svd(makers, 14, seed=5, client=where)
        bits.add((found.singular_values.tobytes(), found.vectors.tobytes()))
    assert len(bits) == 1
    other = randomized_svd(makers, 14, seed=6)
    assert (other.singular_values.tobytes(), other.vectors.tobytes()) not in bits
