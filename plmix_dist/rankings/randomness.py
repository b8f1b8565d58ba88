"""Random streams keyed by seed, purpose and place, so that results do not depend on the order of the work."""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """The stream of random numbers for one purpose and place, such as ("rankings", leaf number).

    Examples
    --------
    >>> bool(generator(0, "rankings", 7).random() == generator(0, "rankings", 7).random())
    True
    >>> bool(generator(0, "rankings", 7).random() == generator(0, "rankings", 8).random())
    False
    """
    spawn_key = (zlib.crc32(purpose.encode()), *key)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=spawn_key)))
