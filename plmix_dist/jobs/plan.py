"""What a job would do, found out without doing it: rows, tasks, memory, bytes and seconds per pass."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

from plmix_dist.cluster.executor import LazyExecutor, bytes_of
from plmix_dist.datasets.given import as_rankings, rankings_of_block
from plmix_dist.fitting import chains, e_step, fit, methods, overview, point
from plmix_dist.jobs import driver, folder, steps
from plmix_dist.jobs.file import Job
from plmix_dist.passes import ThreadedPasses
from plmix_dist.passes.memory import check_memory, free_memory, stays_in_memory
from plmix_dist.rankings import RankingBlock
from plmix_dist.solvers import MStep
from plmix_dist.store import Location, RankingStore, open_store
from plmix_dist.tables.sources import file_digest, find, find_sources

# The most that a process takes that has imported everything and loaded kernels; 280 MB were measured.
_PROCESS_BYTES = 350_000_000
# Rows are in memory at most this many times: as they are read from the store, and as they are computed with.
_COPIES = 3
_BYTES_PER_NUMBER = 8
# A sweep of Gibbs sampling takes this many times as long as a pass of EM (docs/benchmarks.md: 1.8).
_SWEEP = 2.0


def plan_of(job: Job) -> dict[str, Any]:
    """What a job would do. Of a store that is not there yet, only its sources are known."""
    place = Location.of(job["data.store"])
    store = open_store(place) if place.exists("manifest.json") else None
    plan: dict[str, Any] = {"steps": [step.name for step in steps.wanted_steps(job)]}
    if job["data.sources"] is not None:
        before = steps.files_read(folder.OutputFolder(job.folder))
        new = steps.new_sources({file: file_digest(file) for file in find_sources(job["data.sources"])}, before, store)
        plan |= {"new_sources": len(new), "new_bytes": sum(find(file).size for file in new)}
    return plan if store is None else plan | _costs(job, store)


def _costs(job: Job, store: RankingStore) -> dict[str, Any]:
    processes, threads, memory = _workers(job)
    checked = _settings_of_a_pass(job)
    check_memory(store.n_items, checked.n_components)
    rankings = as_rankings(store, ties=checked.ties)
    leaf = next(iter(rankings.iter_leaves(0, 1, labels=False)))
    # How much there is, as far as the manifest and the first leaf show.
    n_below = int(leaf.below.sum() * (store.n_rankings / leaf.n_rankings))
    tied = 0 if leaf.tied is None else int(leaf.tied.sum())
    extent = overview.Extent(store.total_weight, store.n_rankings, store.n_entries, n_below, tied)
    m_step = fit.choose_m_step(checked, extent, store.n_items)
    numbers = checked.n_components * m_step.numbers(store.n_items)
    tasks = min(processes, store.n_leaves)
    rows_bytes = rankings.decoded_bytes / tasks
    resident = stays_in_memory(checked.residency, rows_bytes, memory)
    in_memory = rows_bytes if resident else threads * rankings.decoded_bytes / store.n_leaves
    sums_bytes = numbers * _BYTES_PER_NUMBER
    seconds = _seconds_of_leaf(leaf, m_step, checked) * store.n_rankings / leaf.n_rankings
    if job["task"] == "bayes":
        seconds *= _SWEEP
    return {
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
        "n_leaves": store.n_leaves,
        "m_step": m_step.name,
        "workers": processes,
        "threads_per_worker": threads,
        "tasks_per_pass": tasks,
        "rows_stay_in_memory": resident,
        "memory_per_worker": int(_PROCESS_BYTES + _COPIES * in_memory + (threads + 1) * sums_bytes),
        "bytes_sent_per_pass": int(tasks * (sums_bytes + checked.n_components * store.n_items * _BYTES_PER_NUMBER)),
        "bytes_read_per_pass": 0 if resident else int(rankings.decoded_bytes),
        "seconds_per_pass": seconds / min(store.n_leaves, processes * threads),
    }


def _settings_of_a_pass(job: Job) -> methods.FitSettings:
    """Settings of a fit that costs what a pass of the job costs: all mixtures of a selection, or all chains."""
    own, components = job.work.checked(), job["model.components"]
    if isinstance(own, chains.BayesSettings):
        together = own.n_components * own.n_chains
        return methods.FitSettings(together, m_step="mm", ties="marginal", residency=own.residency, init="random")
    together = sum(components) if isinstance(components, list) else components
    return replace(own, n_components=together, shares=None, init="random")


def _workers(job: Job) -> tuple[int, int, float]:
    """Where a job computes: how many processes, threads of each, bytes of memory of each. A scheduler is asked."""
    cores, options = os.cpu_count() or 1, driver.cluster_options(job)
    if options.scheduler is not None:
        with LazyExecutor(options) as executor:
            known = list(executor.client().scheduler_info(n_workers=-1)["workers"].values())
        threads = min((worker["nthreads"] for worker in known), default=1)
        memory = min((worker["memory_limit"] or free_memory() for worker in known), default=free_memory())
        return max(1, len(known)), threads, memory
    if not options.workers:
        return 1, options.threads or cores, free_memory()
    memory = bytes_of(options.memory_limit) or free_memory() / options.workers
    return options.workers, options.threads or 1, memory


def _seconds_of_leaf(leaf: RankingBlock, m_step: MStep, settings: methods.FitSettings) -> float:
    """Seconds that one thread takes for the E-step of a leaf: the better of two, after kernels were loaded."""
    n_components = settings.n_components
    start = point.Point.start(np.zeros((n_components, leaf.n_items)), np.full(n_components, 1 / n_components))
    passes = ThreadedPasses(rankings_of_block(leaf), n_threads=1)
    request = e_step.em_request(m_step, start, None, settings.alpha or 1.0)
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        (answer,) = passes.run([request])
        seconds.append(time.perf_counter() - begun)
        answer.get()
    passes.release()
    return min(seconds[1:])
