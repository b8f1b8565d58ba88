"""Compiled code that no signal ends: what the main thread of an interrupted process may be in."""

from __future__ import annotations

import hashlib
import threading
import time

# Seconds of computing after which the main thread is certainly inside.
_INSIDE = 0.1


def stay_inside() -> None:
    """Compute for many minutes in one call, and print "inside" as soon as it has begun."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    threading.Thread(target=_print_inside, args=(clock, time.clock_gettime(clock)), daemon=True).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # without the GIL, and without a look at signals


def _print_inside(clock: int, begun: float) -> None:
    while time.clock_gettime(clock) < begun + _INSIDE:
        time.sleep(0.01)
    print("inside", flush=True)  # noqa: T201
