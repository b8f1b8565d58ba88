"""as_rankings(): one way in for stores, their paths, Dask arrays, blocks, arrays, lists and tables."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plmix_dist.data.covariates import checked_covariates
from plmix_dist.data.rankings import Rankings
from plmix_dist.data.sample_weights import check_total, checked_weights
from plmix_dist.data.table_rows import block_of_table
from plmix_dist.engine.block_leaves import BlockLeaves
from plmix_dist.engine.dask_arrays import is_dask_array
from plmix_dist.engine.dask_leaves import DaskLeaves, check_dask_array, item_range
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.store_leaves import StoreLeaves
from plmix_dist.errors import SettingsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.groups import check_groups, membership_weight
from plmix_dist.rankings.numbering import check_numbered_from_zero
from plmix_dist.rankings.ranges import check_ranges
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.rankings.validate import check_rows
from plmix_dist.store import RankingStore, open_store
from plmix_dist.store.location import Location
from plmix_dist.values import one_of, whole_number

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike

    from plmix_dist.rankings import Unranked


def as_rankings(
    source: Any,
    *,
    n_items: int | None = None,
    unranked: Unranked | None = None,
    default_unranked: Unranked | None = None,
    sample_weight: ArrayLike | None = None,
    item_names: tuple[str, ...] | None = None,
    client: Client | None = None,
    ties: str = "marginal",
    covariates: ArrayLike | None = None,
) -> Rankings:
    """Whatever the user gave, as leaves; an error that says what is wrong with it.

    Parameters
    ----------
    source
        What PlackettLuceMixture.fit takes as X.
    n_items
        The number of items, if they are numbered.
    unranked
        What unlisted items mean in this call. A store knows it, so for a store this is an error.
    default_unranked
        The same where `unranked` is None: the estimator's parameter. Stores ignore it.
    sample_weight : (n_rankings,)
    item_names
        Those of a fitted model: a source that names its items must use these names.
    client
        Where the largest item of a Dask array is looked for; None for threads of this process.
    ties
        How ties are treated: a name in `TIES`. "marginal" keeps them as they are.
    covariates : (n_rankings, n_columns)
        Columns of the person who gave each ranking.

    Examples
    --------
    >>> as_rankings([[0, 1, 2], [2, 1, 0]]).n_items
    3
    >>> as_rankings([["tea", "coffee"], ["coffee", "tea"]]).item_names
    ('coffee', 'tea')
    """
    if isinstance(source, Rankings):
        return source
    found = _rankings_of(source, n_items, unranked, default_unranked, sample_weight, item_names, client)
    return replace(found, ties=TIES[ties], covariates=checked_covariates(covariates, found.n_rankings))


def rankings_of_block(block: RankingBlock) -> Rankings:
    """A block that was checked before, such as a sample of rankings, as leaves; its ties stay as they are.

    Examples
    --------
    >>> rankings_of_block(RankingBlock.from_array([[0, 1], [1, 0]])).n_rankings
    2
    """
    return Rankings(BlockLeaves(block), block.n_items, tuple(map(str, range(block.n_items))))


def weight_of_memberships(store: RankingStore) -> float:
    """What a mean log-likelihood is divided by: the number of persons in a store with groups, else the total weight.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> weight_of_memberships(plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5))
    100.0
    """
    if not any(name.startswith("groups") for name in StoreLeaves(store).columns):
        return store.total_weight
    return sum(membership_weight(block) for block in store.iter_leaves(labels=False))


def _rankings_of(
    source: Any,
    n_items: int | None,
    unranked: Unranked | None,
    default_unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
    client: Client | None,
) -> Rankings:
    n_items = _checked_arguments(n_items, unranked, default_unranked)
    if isinstance(source, str | os.PathLike | Location):
        source = open_store(source)
    if isinstance(source, RankingStore):
        return _from_store(source, n_items, unranked, sample_weight, item_names)
    unranked = unranked or default_unranked
    if n_items is not None and item_names is not None and len(item_names) != n_items:
        raise SettingsError(f"n_items is {n_items}, but the model has {len(item_names)} items")
    if is_dask_array(source):
        known = n_items if item_names is None else len(item_names)
        return _from_dask(source, known, unranked, sample_weight, item_names, client)
    block, names = _block_of(source, n_items, unranked, item_names)
    names = names or tuple(str(number) for number in range(block.n_items))
    return Rankings(
        BlockLeaves(block), block.n_items, names, checked_weights(sample_weight, block.n_rankings)
    )


def _checked_arguments(n_items: Any, *unranked: Any) -> int | None:
    for one in unranked:
        if one is not None:
            one_of("unranked", one, ("below", "absent"))
    if n_items is None:
        return None
    check_memory(whole_number("n_items", n_items, at_least=1))
    return int(n_items)


def _block_of(
    source: Any, n_items: int | None, unranked: Unranked | None, item_names: tuple[str, ...] | None
) -> tuple[RankingBlock, tuple[str, ...] | None]:
    """A block that a fit can use, and the names of its items if they have any."""
    if isinstance(source, RankingBlock):
        known = n_items if item_names is None else len(item_names)
        block, names = _checked_block(source, known), item_names
    else:
        block, names = block_of_table(source, n_items, unranked, item_names)
    check_memory(block.n_items)
    if block.n_rankings == 0:
        raise SettingsError("there are no rankings")
    return block, names


def _checked_block(block: RankingBlock, n_items: int | None) -> RankingBlock:
    """The block, which may have been made by hand; an error if a fit cannot use it."""
    check_ranges(block)
    check_rows(block.replace(weights=None))  # here a row may have weight zero
    check_groups(block)
    if n_items is not None and n_items != block.n_items:
        raise SettingsError(f"the block has {block.n_items} items, but {n_items} are expected")
    if block.n_rankings:
        check_total(block.total_weight)
    return block


def _from_store(
    store: RankingStore,
    n_items: int | None,
    unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
) -> Rankings:
    if unranked is not None:
        raise SettingsError("a store says itself what unranked items mean; leave out unranked")
    if n_items is not None and n_items != store.n_items:
        raise SettingsError(f"n_items is {n_items}, but the store has {store.n_items} items")
    if item_names is not None and store.item_names != item_names:
        raise SettingsError(
            f"the store at {store.location.url} has other items than the model: "
            f"{first_difference(store.item_names, item_names)}; read its source again with the items of the model: "
            "plmix ingest SOURCE STORE --items MODEL (item_names=model.item_names_ in Python)"
        )
    leaves = StoreLeaves(store)
    check_total(store.total_weight)
    weights = checked_weights(sample_weight, store.n_rankings)
    return Rankings(leaves, store.n_items, store.item_names, weights)


def _from_dask(
    array: Any,
    n_items: int | None,
    unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
    client: Client | None,
) -> Rankings:
    check_dask_array(array)
    if n_items is None:
        smallest, largest = item_range(array, client)
        check_numbered_from_zero(smallest, largest)
        n_items = largest + 1
        check_memory(n_items)
    leaves = DaskLeaves(array, n_items, unranked)
    names = item_names or tuple(str(number) for number in range(n_items))
    weights = checked_weights(sample_weight, array.shape[0])
    return Rankings(leaves, n_items, names, weights)


def first_difference(found: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Where two lists of item names differ, in words.

    Examples
    --------
    >>> first_difference(("tea", "mate"), ("tea", "milk"))
    "item 1 is 'mate' here and 'milk' there"
    """
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        if mine != theirs:
            return f"item {number} is {mine!r} here and {theirs!r} there"
    return f"{len(found)} items here and {len(expected)} there"
