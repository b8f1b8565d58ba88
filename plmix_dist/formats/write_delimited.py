"""Writing delimited text: what the exports of orderings, wide, long and ranks share."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from plmix_dist.formats.format import number_text, written_name
from plmix_dist.formats.items import natural_order, shown
from plmix_dist.formats.labelled import exists, labelled_rows, open_target, refuse, remove, survey
from plmix_dist.formats.notation import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.formats.labelled import LabelledRow, Survey
    from plmix_dist.store import RankingStore


def write_rows(
    store: RankingStore,
    target: str,
    names: Callable[[Survey], list[str]],
    values: Callable[[LabelledRow], list[list[Any]]],
    *,
    always_weights: bool = False,
    ids_are_values: bool = False,
    items_are_columns: bool = False,
) -> None:
    r"""Write a store as a table.

    Parameters
    ----------
    names
        Names of the columns that hold items.
    values
        The values of these columns for each line of a ranking.
    always_weights
        Whether to write weights that are all 1.
    ids_are_values
        Whether `values` includes the ids.
    items_are_columns
        Whether the names of the columns are all items in order.

    Examples
    --------
    >>> import pathlib, tempfile, plmix_dist
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> store = plmix_dist.simulate(folder / "s", n_rankings=2, n_items=3)
    >>> write_rows(store, f"{folder}/best.csv", lambda found: ["best"], lambda row: [[row.labels[0]]])
    >>> (folder / "best.csv").read_text()
    'best\n2\n1\n'
    """
    found = survey(store)
    _refuse_names(store, target)
    has_ids = found.has_ids and not ids_are_values
    labels = [role for role, there in (("id", has_ids), ("group", found.has_groups)) if there]
    labels += ["unranked"] if found.mixed_unranked else []
    weighted = found.has_weights or always_weights
    with open_target(target) as out:
        table = csv.writer(
            out, delimiter="\t" if target.removesuffix(".gz").endswith(".tsv") else ",", lineterminator="\n"
        )
        weight_name = [written_name("weight")] if weighted else []
        table.writerow([*weight_name, *names(found), *(written_name(role) for role in labels)])
        for row in labelled_rows(store, store.item_names):
            weight = [number_text(row.weight)] if weighted else []
            said = [getattr(row, role) for role in labels]
            for listed in values(row):
                cells = [
                    str(cell)
                    for cell in (*weight, *listed, *("" if label is None else label for label in said))
                ]
                if any("\n" in cell or "\r" in cell for cell in cells):
                    refuse(target, "a label contains a line break", "Parquet")
                table.writerow([spreadsheet_safe(cell) for cell in cells])
        # Before the rows appear, which mean nothing without it.
        _write_items_beside(store, target, found, not items_are_columns)


def _refuse_names(store: RankingStore, target: str) -> None:
    """An error if a name begins or ends with spaces, because reading text removes them, or has a line break."""
    surrounded = next((name for name in store.item_names if name != name.strip()), None)
    if surrounded is not None:
        refuse(target, f"there are spaces around the item name {shown(surrounded)}", "Parquet")
    broken = next((name for name in store.item_names if "\r" in name), None)
    if broken is not None:
        refuse(target, f"a carriage return is in the item name {shown(broken)}", "Parquet")


def _write_items_beside(store: RankingStore, target: str, found: Survey, by_rows: bool) -> None:
    """Write `TARGET.items`, one name per line, if the items are given by rows that do not give back all in order."""
    whole = all(found.items_seen) and list(store.item_names) == natural_order(store.item_names)
    if by_rows and not whole:
        with open_target(items_beside(target)) as out:
            out.writelines(f"{name}\n" for name in store.item_names)
    elif exists(items_beside(target)):  # left by an earlier export; ingest would read it
        remove(items_beside(target))


def items_beside(target: str) -> str:
    """The file beside a text source that names its items.

    Examples
    --------
    >>> items_beside("votes.csv")
    'votes.csv.items'
    """
    return f"{target}.items"
