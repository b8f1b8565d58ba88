"""A store for other tools: export() writes a file, as_xarray() gives a lazy xarray Dataset."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.passes import StoreLeaves
from plmix_dist.passes.by_row import RowFunction, rows_lazily
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import RankingStore, check_file, open_store
from plmix_dist.tables.registry import format_of_target
from plmix_dist.tables.write import check_target


def export(
    store: RankingStore | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002 - the name users know
    overwrite: bool = False,
) -> None:
    """Write a store as PrefLib, delimited text or Parquet. Ingesting the file gives the same rankings.

    Parameters
    ----------
    store
        A store, or its path or URL.
    target
        The file or URL to write; it is compressed if its name ends in `.gz`.
    format
        "auto" by suffix (text becomes "orderings"), or "preflib", "orderings", "wide", "long", "parquet".
    overwrite
        Whether to replace a file that is there; without it that is an error.

    Examples
    --------
    >>> import pathlib, tempfile, plmix_dist
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> store = plmix_dist.simulate(folder / "s", n_rankings=2, n_items=3, random_state=1)
    >>> export(store, folder / "s.csv")
    >>> print((folder / "s.csv").read_text().splitlines()[0])
    count,ordering
    """
    opened = store if isinstance(store, RankingStore) else open_store(store)
    path = os.fspath(target)
    chosen = format_of_target(path, format)
    if chosen.write is None:
        raise SettingsError(f"the format {chosen.name} is only read; write orderings, long or parquet")
    if opened.feature_names and not chosen.takes_features:
        raise SettingsError(f"the features of this store would be lost in {chosen.name}; say --format long")
    if opened.person_columns and not chosen.takes_persons:
        raise SettingsError(f"columns about persons would be lost in {chosen.name}; say --format long or orderings")
    opened = opened.with_features(range(len(opened.feature_names)))
    check_file(path, overwrite=overwrite, sources=[opened.location.url])
    check_target(path)  # before all rows are read
    chosen.write(opened, path)


def as_xarray(store: RankingStore | str | os.PathLike[str]) -> Any:
    """A store as an xarray Dataset of Dask arrays. Rows are read when they are asked for; lengths are read now.

    Needs xarray: `pip install "plmix-dist[xarray]"`.

    Parameters
    ----------
    store
        A store, or its path or URL.

    Returns
    -------
    dataset
        Dimensions `ranking`, `place` and `item`. `items` (ranking, place) holds item numbers, best first, -1 after the
        end of a row; items on offer but not ordered come last. `n_listed`, `n_ordered`, `below` and `weight` have one
        number per ranking; `tied` (ranking, place) is there if the store has ties, `group` if it has groups. The
        coordinate `item` has the names of all items, and `id` the ids of rankings, if there are any.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5, random_state=0)
    >>> rankings = as_xarray(store)
    >>> dict(rankings.sizes), type(rankings["items"].data).__module__
    ({'ranking': 100, 'place': 5, 'item': 5}, 'dask.array.core')
    >>> int((rankings["items"].isel(place=0) == 2).sum().compute(scheduler="synchronous"))  # first places of item 2
    14
    """
    try:
        import xarray
    except ImportError:
        raise SettingsError(
            'as_xarray needs xarray, which is not installed; pip install "plmix-dist[xarray]"'
        ) from None
    opened = store if isinstance(store, RankingStore) else open_store(store)
    leaves = StoreLeaves(opened)
    longest = _longest(opened)
    row = {name: (("ranking",), rows_lazily(leaves, function)) for name, function in _ROWS.items()}
    table = {"items": _table(_items, longest, np.int64)}
    if "tied" in leaves.columns:
        table["tied"] = _table(_tied, longest, np.bool_)
    wide = {name: (("ranking", "place"), rows_lazily(leaves, function)) for name, function in table.items()}
    labels = {
        name[:-1]: (("ranking",), _labels_lazily(opened, leaves, name))
        for name in ("ids", "groups")
        if opened.label_kind(name) != "none"
    }
    coordinates = {
        "item": (("item",), np.array(opened.item_names, dtype=object)),
        "place": (("place",), np.arange(1, longest + 1)),
        **{name: labels.pop(name) for name in ("id",) if name in labels},
    }
    attributes = {"location": opened.location.url, "n_items": opened.n_items}
    return xarray.Dataset(wide | row | labels, coords=coordinates, attrs=attributes)


def _longest(store: RankingStore) -> int:
    """The number of items that the longest row lists."""
    lengths = (store.column("n_listed", number) for number in range(store.n_partitions))
    return max((int(found.max(initial=0)) for found in lengths if found is not None), default=0)


def _table(of_block: Any, n_places: int, dtype: type[np.generic]) -> RowFunction:
    return RowFunction(of_block, params=n_places, n_columns=n_places, dtype=dtype)


def _items(block: RankingBlock, n_places: int) -> NDArray[np.int64]:
    table = np.full((block.n_rankings, n_places), -1, np.int64)
    table[block.row_of_item(), block.place_of_item()] = block.items
    return table


def _tied(block: RankingBlock, n_places: int) -> NDArray[np.bool_]:
    table = np.zeros((block.n_rankings, n_places), np.bool_)
    if block.tied is not None:
        table[block.row_of_item(), block.place_of_item()] = block.tied
    return table


_ROWS = {
    "n_listed": RowFunction(lambda block, _: block.n_listed.astype(np.int64), dtype=np.int64),
    "n_ordered": RowFunction(lambda block, _: block.n_ordered.astype(np.int64), dtype=np.int64),
    "below": RowFunction(lambda block, _: block.below, dtype=np.bool_),
    "weight": RowFunction(lambda block, _: block.row_weights),
}


def _labels_lazily(store: RankingStore, leaves: StoreLeaves, name: str) -> Any:
    """Ids or groups as a Dask array: of numbers, or of objects that are text."""
    import dask.array as da
    from dask.delayed import delayed

    dtype = np.dtype(np.int64 if store.label_kind(name) == "number" else object)
    bounds = leaves.leaf_bounds
    chunks = []
    for number, partition in enumerate(store.manifest.partitions):
        first = sum(before.n_leaves for before in store.manifest.partitions[:number])
        n_rows = int(bounds[first + partition.n_leaves] - bounds[first])
        part = leaves.only(first, first + partition.n_leaves)
        value = delayed(_labels, pure=False, traverse=False)(part.store, name, dtype)
        chunks.append(da.from_delayed(value, (n_rows,), dtype=dtype))
    return da.concatenate(chunks)


def _labels(part: RankingStore, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    blocks = [getattr(block, name) for block in part.iter_leaves(labels=True)]
    return np.concatenate([np.array(labels, dtype) for labels in blocks])
