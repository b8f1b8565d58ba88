"""The canonical tree: the same brackets whatever the tasks, and runs of leaves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plmix_dist.errors import FitError
from plmix_dist.passes.tree import Failure, Summed, TreeSum, add_statistics, join, leaf_ranges, shared_ranges, total_of
from plmix_dist.rankings.sampling import generator


@dataclass(frozen=True)
class Term:
    """A number that remembers how it was added up."""

    text: str

    def __add__(self, other: Term) -> Term:
        return Term(f"({self.text}+{other.text})")


class Total(NamedTuple):
    sum: Any
    square: Any


def by_definition(leaves: list[Any], start: int, width: int) -> Any:
    """The sum of a node: left half plus right half, or the left alone where the data end before the right."""
    if width == 1:
        return leaves[start]
    left = by_definition(leaves, start, width // 2)
    if start + width // 2 >= len(leaves):
        return left
    return left + by_definition(leaves, start + width // 2, width // 2)


def root_by_definition(leaves: list[Any]) -> Any:
    return by_definition(leaves, 0, 1 << (len(leaves) - 1).bit_length())


@st.composite
def runs_in_any_order(draw: st.DrawFn, n_leaves: int) -> list[tuple[int, int]]:
    """All leaves cut into runs, the runs shuffled."""
    cuts = sorted(draw(st.sets(st.integers(1, n_leaves - 1), max_size=6))) if n_leaves > 1 else []
    return draw(st.permutations(list(itertools.pairwise([0, *cuts, n_leaves]))))


@given(data=st.data(), n_leaves=st.integers(1, 40))
def test_tree_sum__brackets_of_the_definition(data: st.DataObject, n_leaves: int) -> None:
    leaves = [Term(str(number)) for number in range(n_leaves)]
    tree = TreeSum(n_leaves)
    for leaf in data.draw(st.permutations(range(n_leaves))):
        tree.add_leaf(leaf, Total(leaves[leaf], leaves[leaf]))
    assert tree.root() == Total(*[root_by_definition(leaves)] * 2)


@pytest.mark.promise(10)
@given(
    data=st.data(),
    n_leaves=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_tree_sum__same_bits_for_any_tasks(data: st.DataObject, n_leaves: int, seed: int, dtype: type) -> None:
    # Numbers of many magnitudes and both signs: almost any other order of adding gives other bits.
    rng = np.random.default_rng(seed)
    leaves = [(rng.normal(size=3) * 10.0 ** rng.integers(-8, 8, 3)).astype(dtype) for _ in range(n_leaves)]
    parts = []
    for start, stop in data.draw(runs_in_any_order(n_leaves)):
        tree = TreeSum(n_leaves)
        for leaf in data.draw(st.permutations(range(start, stop))):
            tree.add_leaf(leaf, Total(leaves[leaf], leaves[leaf] ** 2))
        parts.append(tree.nodes)
    # Some tasks' nodes are joined first, and these with the others, as the levels of a graph do.
    split = data.draw(st.integers(0, len(parts)))
    some, whole = TreeSum(n_leaves), TreeSum(n_leaves)
    for nodes in parts[:split]:
        some.add_nodes(nodes)
    for nodes in (some.nodes, *parts[split:]):
        whole.add_nodes(nodes)
    expected = root_by_definition(leaves), root_by_definition([leaf**2 for leaf in leaves])
    for found, wanted in zip(whole.root(), expected, strict=True):
        assert found.dtype == dtype
        assert found.tobytes() == wanted.tobytes()


def test_join__keeps_the_failure_of_the_lower_leaf_and_the_slowest_time() -> None:
    parts = [Summed([{(0, leaf): Failure(FitError(f"leaf {leaf}"))}], 1.0 + leaf, 0.0) for leaf in (1, 0)]
    joined = join([(add_statistics, 2)], parts)
    assert str(total_of(joined.nodes[0], 2).error) == "leaf 0"
    assert joined.pass_seconds == 2.0


def test_tree_sum__missing_leaf() -> None:
    tree = TreeSum(5)
    for leaf in (0, 1, 2, 4):
        tree.add_leaf(leaf, Total(leaf, leaf))
    # Leaf 4 has no sibling and has climbed as far as it goes.
    with pytest.raises(ValueError, match=r"not complete: \[\(0, 2\), \(1, 0\), \(2, 1\)\] of 5 leaves"):
        tree.root()
    tree.add_leaf(3, Total(3, 3))
    assert tree.root() == Total(10, 10)


@given(n_leaves=st.integers(1, 20_000), n_tasks=st.integers(1, 300))
def test_leaf_ranges__laws(n_leaves: int, n_tasks: int) -> None:
    ranges = leaf_ranges(n_leaves, n_tasks)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == n_leaves
    assert len(ranges) == min(n_leaves, n_tasks)
    share = n_leaves / len(ranges)
    lengths = [stop - start for start, stop in ranges]
    assert min(lengths) >= 1
    assert max(abs(length - share) for length in lengths) <= max(1.0, share / 8)


@given(
    n_leaves=st.integers(0, 20_000),
    shares=st.lists(st.integers(1, 64), min_size=1, max_size=40),
    first=st.integers(0, 100),
)
def test_shared_ranges__laws(n_leaves: int, shares: list[int], first: int) -> None:
    ranges = shared_ranges(n_leaves, shares, first)
    assert len(ranges) == len(shares)
    assert [start for start, _ in ranges] == [first, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == first + n_leaves
    for share, (start, stop) in zip(shares, ranges, strict=True):
        fair = n_leaves * share / sum(shares)
        assert stop - start >= 0
        assert abs(stop - start - fair) <= max(1.0, fair / 8)


@pytest.mark.parametrize(("n_leaves", "n_tasks"), [(100, 3), (1_000, 7), (4_097, 16), (9_999, 5)])
def test_leaf_ranges__few_nodes_travel(n_leaves: int, n_tasks: int) -> None:
    for start, stop in leaf_ranges(n_leaves, n_tasks):
        tree = TreeSum(n_leaves)
        for leaf in range(start, stop):
            tree.add_leaf(leaf, Total(1, 1))
        assert len(tree.nodes) <= 8


def whole(total: Any) -> Any:
    return total


def draw(number: int, block: Any, seed: int) -> Any:
    return generator(seed, "test", number).normal(size=3)
