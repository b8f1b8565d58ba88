"""How sure a fit is: standard errors from second derivatives, and the bootstrap."""

from plmix_dist.uncertainty.results import StandardErrors
from plmix_dist.uncertainty.standard_errors import standard_errors

__all__ = ["StandardErrors", "standard_errors"]
