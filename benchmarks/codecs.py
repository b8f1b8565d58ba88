"""Which codec and chunk size: bytes against n log2(n) / 8, and the rate of reading and decoding on one thread."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

from benchmarks.common import best_of, folder_bytes, save

CODECS = {
    "zstd 0": lambda _: ZstdCodec(level=0, checksum=True),
    "zstd 1": lambda _: ZstdCodec(level=1, checksum=True),
    "zstd 5": lambda _: ZstdCodec(level=5, checksum=True),
    "blosc zstd": lambda size: BloscCodec(cname="zstd", clevel=1, shuffle="noshuffle", typesize=size),
    "blosc bitshuffle zstd": lambda size: BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle", typesize=size),
}


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    with zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1}):
        for n_items, n_rankings in ((10, 1_000_000), (100, 200_000), (1000, 20_000)):
            shape = (2_000 if tiny else n_rankings, n_items)
            items = np.argsort(rng.random(shape), axis=1).astype(np.min_scalar_type(n_items - 1)).ravel()
            for chunk_bytes in (1 << 18, 1 << 20, 1 << 21, 1 << 22):
                rows += [measure(items, n_items, chunk_bytes, name) for name in CODECS]
    return save("codecs", rows)


def measure(items: np.ndarray[Any, Any], n_items: int, chunk_bytes: int, codec: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        chunk = min(chunk_bytes // items.itemsize, len(items))
        array = zarr.create_array(
            folder, shape=items.shape, dtype=items.dtype, chunks=(chunk,), compressors=[CODECS[codec](items.itemsize)]
        )
        write_seconds, _ = best_of(1, lambda: array.__setitem__(slice(None), items))

        def read() -> None:
            for start in range(0, len(items), chunk):
                array[start : start + chunk]

        read_seconds, _ = best_of(3, read)
        n_bytes = folder_bytes(Path(folder))
    bound = len(items) * math.log2(n_items) / 8
    return {
        "n": n_items,
        "chunk kB": chunk_bytes >> 10,
        "codec": codec,
        "of n log2(n) / 8": n_bytes / bound,
        "write MB/s": items.nbytes / write_seconds / 1e6,
        "read MB/s": items.nbytes / read_seconds / 1e6,
    }
