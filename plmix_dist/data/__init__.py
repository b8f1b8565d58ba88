"""Whatever users hand in as rankings - stores, arrays, lists, tables - as leaves that a fit can use."""

from plmix_dist.data.rankings import Rankings
from plmix_dist.data.sources import as_rankings, first_difference, rankings_of_block

__all__ = ["Rankings", "as_rankings", "first_difference", "rankings_of_block"]
