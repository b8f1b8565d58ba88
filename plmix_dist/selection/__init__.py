"""Choosing the number of components: fits of many numbers in the same passes, criteria, the choice in words."""

from plmix_dist.selection.selection import MixtureSelection

__all__ = ["MixtureSelection"]
