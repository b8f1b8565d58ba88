"""Loops over state: algorithms that ask for passes over the data and are told the answers."""

from plmix_dist.inference.algorithm import Algorithm, run
from plmix_dist.inference.em import Em, EmState
from plmix_dist.inference.point import Point
from plmix_dist.inference.together import Together

__all__ = ["Algorithm", "Em", "EmState", "Point", "Together", "run"]
