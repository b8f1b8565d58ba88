"""The verb that fills the cache of compiled kernels: compile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plmix_dist.cli import plmix
from plmix_dist.cli.interruption import tell_if_interrupted
from plmix_dist.cli.options import examples, talking
from plmix_dist.cli.output import show, size
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from plmix_dist.cli.options import Talk


@plmix.command("compile", epilog=examples("plmix compile"))
@talking
def compile_verb(*, talk: Talk) -> None:
    """Compile all kernels into the cache, for images and new workers.

    A first fit then starts without compiling. The cache is in PLMIX_CACHE_DIR or, if that is not set, in the user's
    cache folder. It serves one version of plmix and one type of processor.
    """
    from plmix_dist.interruption import StoppableThreads
    from plmix_dist.kernels import cache_folder, compile_kernels

    tell_if_interrupted(lambda: "kernels that are compiled are kept; run the same command again to continue")
    begun, folder = time.perf_counter(), cache_folder()
    threads = StoppableThreads(1, "compile")  # an interruption does not wait for the compiler
    try:
        kernels = threads.submit(compile_kernels).result()
    finally:
        threads.stop(0.0)
    if not all(kernel.is_kept for kernel in kernels):
        raise SettingsError(
            f"compiled kernels cannot be written to {folder}; set PLMIX_CACHE_DIR to a folder that can be written"
        )
    seconds = time.perf_counter() - begun
    n_bytes = sum(path.stat().st_size for path in folder.glob("*.kernel"))
    record = {
        "folder": str(folder),
        "kernels": [
            {"name": kernel.name, "compiled": not kernel.was_kept, "seconds": round(kernel.seconds, 3)}
            for kernel in kernels
        ],
        "bytes": n_bytes,
        "seconds": round(seconds, 3),
    }
    lines = [
        *((kernel.name, "was there" if kernel.was_kept else f"{kernel.seconds:.2f} s") for kernel in kernels),
        (
            "compiled",
            f"{sum(not kernel.was_kept for kernel in kernels)} of {len(kernels)} kernels, {seconds:.2f} s",
        ),
        ("folder", f"{folder} ({size(n_bytes)})"),
    ]
    show(lines, record, **vars(talk))
