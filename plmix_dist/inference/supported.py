"""Whether the data support the number of components: refused where they cannot, a warning where it is not certain."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from plmix_dist.errors import NotIdentifiableWarning, SettingsError
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths
from plmix_dist.rankings.merge import merge_equal_rows

if TYPE_CHECKING:
    from plmix_dist.rankings import RankingBlock

# So many rows per component are searched for distinct rankings first; all of them only if these are too few.
_ROWS_PER_COMPONENT = 64
# warn(), this function, _fit, fit_mixture, fit of the estimator: the next is the caller's own line.
_CALLERS_LINE = 5


def check_supported(sample: RankingBlock, n_components: int, *, all_rows: bool) -> None:
    """Refuse more components than distinct rankings; warn of more components than the rankings identify.

    Parameters
    ----------
    sample
        Rows drawn at random from the data.
    n_components
        The number of components to be fitted.
    all_rows
        Whether the sample holds all rows of the data. If not, nothing is refused.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> check_supported(RankingBlock.from_array([[0, 1, 2, 3]] * 9), 2, all_rows=True)
    Traceback (most recent call last):
    plmix_dist.errors.SettingsError: there are 2 components, but only 1 distinct ranking: ...
    """
    if n_components == 1:
        return
    if all_rows:
        refuse_too_many(sample.replace(groups=None), n_components)
    if not sample.group_starts.all():
        return  # what is known holds for one ranking per person; several rankings tell more
    found = identifiability(ordered_lengths(sample), sample.n_items)
    status = found.status(n_components)
    if status in ("identifiable", "generic"):
        return
    never = status == "not identifiable"
    are = "are not" if never else "may not be"
    warnings.warn(
        f"{n_components} components {are} identifiable: {found.reason(n_components)}. Other components "
        f"may give the same probabilities. Predictions are not affected, but do not read much into single components; "
        f"at most {found.generic} are known to be identifiable",
        NotIdentifiableWarning,
        stacklevel=_CALLERS_LINE,
    )


def refuse_too_many(rows: RankingBlock, n_components: int) -> None:
    """An error if there are more components than distinct rankings; `rows` have no groups.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> refuse_too_many(RankingBlock.from_array([[0, 1], [1, 0]]), 2)
    """
    for most in (_ROWS_PER_COMPONENT * n_components, rows.n_rankings):
        n_distinct = merge_equal_rows(rows[:most]).n_rankings
        if n_distinct >= n_components:
            return
    raise SettingsError(
        f"there are {n_components} components, but only {n_distinct} distinct ranking{'s'[: n_distinct != 1]}: "
        f"choose n_components <= {n_distinct} (--components in the shell)"
    )
