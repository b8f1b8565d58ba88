"""Ways of treating ties, one value each: what happens when rows are read, and what the E-step does then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plmix_dist.rankings.linear_extensions import extend_ties

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.rankings.block import RankingBlock


@dataclass(frozen=True)
class TieTreatment:
    """One way of treating ties. To add one, add its value to `TIES`.

    Parameters
    ----------
    name
        What users type as ties.
    extends
        Whether rows become linear extensions when they are read. Otherwise ties stay, and kernels sum over them.
    redraws
        Whether every pass draws one linear extension per row from the current fit.

    Examples
    --------
    >>> TIES["expand"].extends, TIES["marginal"].extends
    (True, False)
    """

    name: str
    extends: bool
    redraws: bool

    @property
    def on_reading(self) -> Callable[[RankingBlock], RankingBlock]:
        """What happens to a block when it is read."""
        return _extended if self.extends else _as_it_is


def _extended(block: RankingBlock) -> RankingBlock:
    return extend_ties(block).block


def _as_it_is(block: RankingBlock) -> RankingBlock:
    return block


EXPAND = TieTreatment("expand", extends=True, redraws=False)
MARGINAL = TieTreatment("marginal", extends=False, redraws=False)
RESAMPLE = TieTreatment("resample", extends=False, redraws=True)
TIES = {treatment.name: treatment for treatment in (EXPAND, MARGINAL, RESAMPLE)}
