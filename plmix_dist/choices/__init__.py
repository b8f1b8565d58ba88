"""What a mixture predicts: choices, pairs, ranks, first places, most probable rankings and completions."""

from plmix_dist.choices.calibration import Calibration, binned
from plmix_dist.choices.first_places import top_k_probabilities
from plmix_dist.choices.most_probable import MostProbable, most_probable
from plmix_dist.choices.probabilities import (
    choice_probabilities,
    expected_ranks,
    order_logs,
    pairwise_probabilities,
)

__all__ = [
    "Calibration",
    "MostProbable",
    "binned",
    "choice_probabilities",
    "expected_ranks",
    "most_probable",
    "order_logs",
    "pairwise_probabilities",
    "top_k_probabilities",
]
