"""export(): write a store to a file that other tools read."""

from __future__ import annotations

import os

from plmix_dist.formats import format_of_target
from plmix_dist.formats.labelled import check_target
from plmix_dist.store import RankingStore, check_file, open_store


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
    check_file(path, overwrite=overwrite, sources=[opened.location.url])
    check_target(path)  # before all rows are read
    chosen.write(opened, path)
