"""A format of ten lines, as docs/architecture.md has it: one match per row, with columns for winner and loser."""

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import row_by_row
from plmix_dist.tables.format import Format, by_names


def _order(cells: dict[str, str]) -> list[str]:
    if cells["winner"] == cells["loser"]:
        raise IngestError(f"{cells['winner']} cannot lose against itself")
    return [cells["winner"], cells["loser"]]


WON_AND_LOST = Format(
    name="won-and-lost",
    roles={"winner": ("won", "winning_team"), "loser": ("lost", "losing_team")},
    recognise=by_names("winner", "loser"),
    read=row_by_row(_order),
)
