"""RatingSettings: which ratings are used, and how they become rankings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from plmix_dist.errors import SettingsError
from plmix_dist.values import one_of, real_number, shown, whole_number

if TYPE_CHECKING:
    from plmix_dist.formats.encoder import OnError

Duplicates = Literal["last", "refuse"]
Choose = Literal["most-rated", "rank-variance"]

# Column names that are recognised for each role, in small letters.
COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "user": (
        *("user", "user_id", "userid", "person", "person_id", "rater", "reviewer", "customer", "customer_id"),
        *("respondent", "respondent_id", "participant", "participant_id", "voter", "voter_id", "id"),
    ),
    "item": (
        *(
            "item",
            "item_id",
            "itemid",
            "item_name",
            "movie",
            "movie_id",
            "movieid",
            "product",
            "product_id",
            "title",
        ),
        *("candidate", "alternative"),
    ),
    "rating": ("rating", "score", "stars", "value"),
    "time": ("time", "timestamp", "date", "datetime", "unixreviewtime"),
}


@dataclass(frozen=True)
class RatingSettings:
    """What the user asked for.

    Examples
    --------
    >>> RatingSettings(n_items=25, complete=30).chosen_by
    'rank-variance'
    >>> RatingSettings(n_items=25).chosen_by
    'most-rated'
    """

    min_user_ratings: int = 1
    min_item_ratings: int = 1
    n_items: int | None = None
    choose: Choose | None = None
    complete: int | None = None
    ridge: float = 0.1
    tol: float = 1e-4
    max_sweeps: int = 200
    duplicates: Duplicates | None = None
    on_error: OnError = "raise"
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("min_user_ratings", self.min_user_ratings, at_least=1)
        whole_number("min_item_ratings", self.min_item_ratings, at_least=1)
        if self.n_items is not None:
            whole_number("n_items", self.n_items, at_least=2)
        if self.choose is not None:
            one_of("choose", self.choose, ("most-rated", "rank-variance"))
            if self.n_items is None:
                raise SettingsError("choose says how n_items items are chosen; give n_items too")
        if self.complete is not None:
            whole_number("complete", self.complete, at_least=1)
        real_number("ridge", self.ridge, above=0)
        real_number("tol", self.tol, above=0)
        whole_number("max_sweeps", self.max_sweeps, at_least=1)
        if self.duplicates is not None:
            one_of("duplicates", self.duplicates, ("last", "refuse"))
        one_of("on_error", self.on_error, ("raise", "drop", "quarantine"))
        _check_columns(self.columns)
        if self.delimiter is not None and (not isinstance(self.delimiter, str) or not self.delimiter):
            raise SettingsError(f"the delimiter must be text, but is {shown(self.delimiter)}")

    @property
    def chosen_by(self) -> Choose:
        """How `n_items` items are chosen: by default as the paper does after completion, else by their ratings."""
        return self.choose or ("most-rated" if self.complete is None else "rank-variance")

    def as_record(self) -> dict[str, Any]:
        """The settings as plain values, for the history of a store.

        Examples
        --------
        >>> RatingSettings(n_items=25).as_record()["n_items"]
        25
        """
        return {"format": "ratings", **asdict(self), "columns": dict(self.columns)}


def _check_columns(columns: Mapping[str, str]) -> None:
    if not isinstance(columns, Mapping) or not all(isinstance(text, str) for text in columns.values()):
        raise SettingsError(f"columns must give a column name for each role, but is {shown(columns)}")
    unknown = sorted(set(columns) - set(COLUMN_NAMES))
    if unknown:
        raise SettingsError(
            f"there is no column role {unknown[0]!r} in ratings; choose from {', '.join(COLUMN_NAMES)}"
        )
