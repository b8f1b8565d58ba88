"""Loops over state: EM, its acceleration and its safeguard."""

from plmix_dist.inference.em import Em
from plmix_dist.inference.fixed_point import Evaluation, Outcome, iterate
from plmix_dist.inference.state import EmState

__all__ = ["Em", "EmState", "Evaluation", "Outcome", "iterate"]
