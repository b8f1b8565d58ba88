"""Kernel: logarithms of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.compiled.at_addresses import load4, store4, unpack
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.compiled.logarithm import log4
from plmix_dist.kernels.compiled.simd import splat4
from plmix_dist.kernels.scratch import Probabilities


@kernel
def take_logs(fields: Any) -> None:
    """Replace each total by log(total * 2**scale), in whole vectors of four."""
    of = unpack(Probabilities, fields)
    log_2 = splat4(np.log(2.0))
    for row in range(0, of.size // 4 * 4, 4):
        store4(of.totals, row, log4(load4(of.totals, row)) + load4(of.scales, row) * log_2)
