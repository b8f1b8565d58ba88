"""as_rankings(): one entry for stores, their paths, Dask arrays, blocks, arrays, lists and tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from plmix_dist.cluster.clients import Client
from plmix_dist.errors import SettingsError
from plmix_dist.passes import BlockLeaves, StoreLeaves, check_memory
from plmix_dist.passes.dask_leaves import DaskLeaves, check_dask_array, is_dask_array, item_range
from plmix_dist.passes.rankings import Rankings, check_total, checked_covariates, checked_weights
from plmix_dist.rankings import TIES, RankingBlock, Unranked, check_numbered_from_zero, check_ranges, check_rows
from plmix_dist.rankings.columns import coded_profiles
from plmix_dist.rankings.features import Features, columns_of_fit, names_of_columns, refuse_twice, row_table
from plmix_dist.rankings.groups import check_groups, membership_weight
from plmix_dist.settings import one_of, whole_number
from plmix_dist.store import Location, RankingStore, open_store
from plmix_dist.tables.cells import block_of_table, order_as_given
from plmix_dist.tables.frames import Names


def as_rankings(
    source: Any,
    *,
    n_items: int | None = None,
    unranked: Unranked | None = None,
    default_unranked: Unranked | None = None,
    sample_weight: ArrayLike | None = None,
    item_names: Names | None = None,
    client: Client | None = None,
    ties: str = "marginal",
    covariates: ArrayLike | None = None,
    features: Any = None,
    feature_names: Names | None = None,
    covariate_names: Names | None = None,
    person_columns: Mapping[str, Sequence[str]] | None = None,
) -> Rankings:
    """Whatever the user gave as X, as leaves; an error that says what is wrong with it.

    `unranked` is that of this call, an error for a store, which knows it; `default_unranked` is the estimator's, which
    stores ignore. `item_names`, `feature_names` and `covariate_names` are those of a fitted model: a source that names
    its items must use them, and features and covariates must have these columns (in a fit, None: any); so are
    `person_columns`, the levels of columns of a store. `client` finds the largest item of a Dask array. Shapes:
    sample_weight (n_rankings,), covariates (n_rankings, n_columns), features (total listed, n_features).
    """
    if isinstance(source, Rankings):
        return source
    n_items = _checked_arguments(n_items, unranked, default_unranked)
    given = open_store(source) if isinstance(source, str | os.PathLike | Location) else source
    if isinstance(given, RankingStore):
        found = _from_store(given, n_items, unranked, item_names)
    else:
        found = _from_memory(given, n_items, unranked or default_unranked, item_names, client)
    found = _with_features(source, found, Features.of(features), feature_names)
    found = replace(found, weights=checked_weights(sample_weight, found.n_rankings))
    found = replace(found, ties=TIES[ties])
    if (levels := _levels_of_persons(given, covariates, person_columns)) is not None:
        profiles, codes = given.profiles()
        named = [dict(zip(given.person_columns, cells, strict=True)) for cells in profiles]
        coded, names = coded_profiles(levels, named)
        return replace(found, covariates=coded[codes], covariate_names=names, person_columns=levels)
    table, names = checked_covariates(covariates, found.n_rankings), names_of_columns(covariates)
    if table is not None and names and covariate_names:  # by name, in any order
        table = table[:, columns_of_fit(covariate_names, names, "membership_covariates")]
    return replace(found, covariates=table, covariate_names=names)


def _levels_of_persons(
    given: Any, covariates: Any, known: Mapping[str, Sequence[str]] | None
) -> Mapping[str, Sequence[str]] | None:
    """The columns about persons of a store that are named, or that a fitted model knows, each with its levels."""
    there = given.person_columns if isinstance(given, RankingStore) else {}
    if covariates is None:
        return known if known and known.keys() <= there.keys() else None
    names = Features(covariates).columns_of_store
    if names is None:
        return None
    refuse_twice("column", names, "membership_covariates")
    if (unknown := next((name for name in names if name not in there), None)) is not None:
        has = f"has {', '.join(there)}" if there else "has them if it is made with --person-columns NAME,NAME"
        raise SettingsError(f"{unknown!r} is not a column about persons of these rankings; a store {has}")
    if known and known.keys() != {*names}:
        raise SettingsError(f"the model was fitted with membership_covariates {', '.join(known)}; give these, or none")
    return known or {name: there[name] for name in names}


# A column of features further from zero than this many times its range is centred.
_FAR = 10.0
_UNLISTED = (
    "features describe the items that a row lists, and here unlisted items are on offer too; give what was on offer in "
    "each row, as choices (chosen, offered)"
)


def _with_features(given: Any, found: Rankings, features: Features | None, known: Names | None) -> Rankings:
    """The rows with features of every listed item; an error if they do not fit together, or to a model."""
    source = found.source
    if isinstance(source, StoreLeaves) and (features is not None or known):
        return _features_of_store(found, source, features, known)
    if features is None:
        columns_of_fit(known or (), 0)
        if isinstance(source, BlockLeaves) and source.block.features is not None:
            raise SettingsError("the block has features of its own; hand them in too: features=block.features")
        return found
    if not isinstance(source, BlockLeaves):
        raise SettingsError("features are given beside rankings in memory, or are columns of a store")
    block = source.block
    if block.below.any():
        raise SettingsError(_UNLISTED)
    table = row_table(features, block.n_listed)
    table = table if known is None else table.of_fit(known)
    order = order_as_given(given)
    values = table.values if order is None else table.values[order]
    # A constant in all rows changes no choice, and numbers far from zero (dates, say) would lose digits.
    middle, ends = values.mean(axis=0, dtype=np.float64), (values.min(axis=0), values.max(axis=0))
    far = np.abs(middle) > _FAR * (ends[1] - ends[0])
    block = block.replace(features=values - np.where(far, middle, 0.0) if far.any() else values)
    return replace(found, source=BlockLeaves(block), feature_names=table.names)


def _features_of_store(
    found: Rankings, source: StoreLeaves, features: Features | None, known: Names | None
) -> Rankings:
    """The rows with columns of features that their store has: those that are named, or those of a fitted model."""
    names = (known or ()) if features is None else features.columns_of_store
    there = source.store.feature_names
    if names is None:
        raise SettingsError(
            "the features of a store are columns that it has; name them: "
            f"features={list(there) or ['price']!r} ({'it has these' if there else 'it has none'})"
        )
    if (unknown := next((name for name in names if name not in there), None)) is not None:
        has = f"has {', '.join(there)}" if there else "has none: read its source with --column features=NAME,NAME"
        raise SettingsError(f"{unknown!r} is not a feature of this store, which {has}")
    refuse_twice("column", names, "features")
    if known is not None:
        columns_of_fit(known, names)
        names = known
    if "below" in source.columns:
        raise SettingsError(_UNLISTED)
    leaves = StoreLeaves(source.store.with_features([there.index(name) for name in names]))
    return replace(found, source=leaves, feature_names=tuple(names))


def rankings_of_block(block: RankingBlock) -> Rankings:
    """A block that was checked before, such as a sample of rankings, as leaves; its ties stay as they are."""
    return Rankings(BlockLeaves(block), block.n_items, tuple(map(str, range(block.n_items))))


def weight_of_memberships(store: RankingStore) -> float:
    """What a mean log-likelihood is divided by: the number of persons in a store with groups, else the total weight."""
    if not any(name.startswith("groups") for name in StoreLeaves(store).columns):
        return store.total_weight
    return sum(membership_weight(block) for block in store.iter_leaves(labels=False))


def _from_memory(
    source: Any, n_items: int | None, unranked: Unranked | None, item_names: Names | None, client: Client | None
) -> Rankings:
    if n_items is not None and item_names is not None and len(item_names) != n_items:
        raise SettingsError(f"n_items is {n_items}, but the model has {len(item_names)} items")
    if is_dask_array(source):
        return _from_dask(source, n_items if item_names is None else len(item_names), unranked, item_names, client)
    block, names = _block_of(source, n_items, unranked, item_names)
    names = names or tuple(str(number) for number in range(block.n_items))
    return Rankings(BlockLeaves(block), block.n_items, names)


def _checked_arguments(n_items: Any, *unranked: Any) -> int | None:
    for one in unranked:
        if one is not None:
            one_of("unranked", one, ("below", "absent"))
    if n_items is None:
        return None
    check_memory(whole_number("n_items", n_items, at_least=1))
    return int(n_items)


def _block_of(
    source: Any, n_items: int | None, unranked: Unranked | None, item_names: Names | None
) -> tuple[RankingBlock, Names | None]:
    """A block that a fit can use, and the names of its items if they have any."""
    if isinstance(source, RankingBlock):
        block, names = _checked_block(source, n_items if item_names is None else len(item_names)), item_names
    else:
        block, names = block_of_table(source, n_items, unranked, item_names)
        if block.weights is not None:
            check_total(block.total_weight)
    check_memory(block.n_items)
    if block.n_rankings == 0:
        raise SettingsError("no rankings were given")
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
    store: RankingStore, n_items: int | None, unranked: Unranked | None, item_names: Names | None
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
    return Rankings(leaves, store.n_items, store.item_names)


def _from_dask(
    array: Any, n_items: int | None, unranked: Unranked | None, item_names: Names | None, client: Client | None
) -> Rankings:
    check_dask_array(array)
    if n_items is None:
        smallest, largest = item_range(array, client)
        check_numbered_from_zero(smallest, largest)
        n_items = largest + 1
        check_memory(n_items)
    names = item_names or tuple(str(number) for number in range(n_items))
    return Rankings(DaskLeaves(array, n_items, unranked), n_items, names)


def first_difference(found: Names, expected: Names) -> str:
    """Where two lists of item names differ, in words."""
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        if mine != theirs:
            return f"item {number} is {mine!r} here and {theirs!r} there"
    return f"{len(found)} items here and {len(expected)} there"
