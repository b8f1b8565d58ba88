"""Dry runs: what they cost, found without writing anything."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import plmix_dist as pl
from plmix_dist.errors import SettingsError
from plmix_dist.jobs import plan as plan_module
from plmix_dist.jobs import read_job
from plmix_dist.jobs.plan import plan_of
from tests.helpers.oracle import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]
from tests.jobs.data import write_job


@pytest.mark.promise(37)
def test_dry_run__tells_and_writes_nothing(place: Path, shell: Shell) -> None:
    write_job(place, cluster={"workers": 2, "threads": 3, "memory": "1GB"})
    before = snapshot(place)
    plan = json.loads(shell("run", "job.toml", "--dry-run", "--json").out)
    assert snapshot(place) == before
    assert (plan["n_rankings"], plan["n_items"], plan["steps"]) == (2_000, 6, ["fit"])
    assert (plan["workers"], plan["threads_per_worker"], plan["tasks_per_pass"]) == (2, 3, 1)
    # One task: two components of six worths go there, and MM's sums (wins, expected wins) come back.
    assert plan["bytes_sent_per_pass"] >= 8 * (2 * 6 + 2 * 6)
    assert plan["memory_per_worker"] > pl.open_store(place / "ballots").decoded_bytes
    assert plan["seconds_per_pass"] > 0
    said = shell("run", "job.toml", "--dry-run")
    assert said.line("rankings") == "2,000 of 6 items, kept in memory"
    assert said.line("tasks") == "1 per pass"


def test_dry_run__refuses_what_no_machine_can_hold(place: Path) -> None:
    with pytest.raises(SettingsError, match=r"6 items in 999,999,999 components need at least .* GB"):
        plan_of(read_job(write_job(place, model={"components": 999_999_999})))


def test_dry_run__counts_with_the_weakest_worker(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": {"nthreads": 4, "memory_limit": 8e9}, "b": {"nthreads": 2, "memory_limit": 3e9}}

    class Asked:
        def __init__(self, options: object) -> None: ...

        def __enter__(self) -> Any:
            info = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": known})
            return SimpleNamespace(client=lambda: info)

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(plan_module, "LazyExecutor", Asked)
    job = read_job(write_job(place, cluster={"scheduler": "tcp://127.0.0.1:9"}))
    assert plan_module._workers(job) == (2, 2, 3e9)


def test_dry_run__asks_the_scheduler(place: Path, client: Client) -> None:
    address = client.scheduler.address
    plan = plan_of(read_job(write_job(place, cluster={"scheduler": address})))
    assert (plan["workers"], plan["threads_per_worker"]) == (2, 1)
