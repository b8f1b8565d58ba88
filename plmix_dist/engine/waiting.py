"""How long to wait for a cluster: settings, read through Dask's configuration.

| key | default | meaning |
|---|---|---|
| `plmix.stall-timeout` | 600 s | a wait ends with an error when nothing has finished or reported for so long |
| `plmix.no-workers-timeout` | 60 s | a wait ends with an error when the cluster has had no workers for so long |
| `plmix.warn-after` | 30 s | a warning is logged when nothing has finished or reported for so long |
| `plmix.tasks-per-worker` | 1 | tasks of a pass per worker; 2 shows an adaptive cluster that more workers would help |

Times are seconds, or text such as `"10 minutes"`. Set them with `dask.config.set({"plmix.stall-timeout": "1 hour"})`,
in a YAML file of Dask's, or with the environment variable `DASK_PLMIX__STALL_TIMEOUT`.
"""

from __future__ import annotations

from typing import NamedTuple

from plmix_dist.values import whole_number

# A task over many rows may run for long: it reports while it works, at most every so many seconds.
_REPORT_SECONDS = 5.0
# The cluster is looked at only when nothing has come for so long.
_LOOK_SECONDS = 2.0


class Patience(NamedTuple):
    """Seconds to wait for: something to happen, a worker to come, before a warning is logged."""

    stall: float
    no_workers: float
    warn: float

    @property
    def look_every(self) -> float:
        """Seconds without a result after which to look at the cluster."""
        return min(_LOOK_SECONDS, min(self) / 4)

    @property
    def report_every(self) -> float:
        """Seconds between two reports of a task that runs for long."""
        return min(_REPORT_SECONDS, self.stall / 4)


def tasks_per_worker(default: int) -> int:
    """How many tasks of a pass each worker gets.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"plmix.tasks-per-worker": 3}):
    ...     tasks_per_worker(1)
    3
    """
    import dask.config

    return whole_number(
        "plmix.tasks-per-worker", dask.config.get("plmix.tasks-per-worker", default), at_least=1
    )


def patience() -> Patience:
    """The settings as they are now.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"plmix.stall-timeout": "2 minutes"}):
    ...     patience()
    Patience(stall=120.0, no_workers=60.0, warn=30.0)
    """
    import dask.config
    from dask.utils import parse_timedelta

    def seconds(name: str, default: float) -> float:
        return float(parse_timedelta(dask.config.get(f"plmix.{name}", default)))

    return Patience(
        seconds("stall-timeout", 600.0), seconds("no-workers-timeout", 60.0), seconds("warn-after", 30.0)
    )
