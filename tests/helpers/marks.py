"""Which tests `make test` leaves to `make test-full`, and which start processes: decided here for all folders.

A test belongs to `make test` unless it is marked `slow` or `full`. Its file may mark it, or it is named below: a test
of seconds whose cases differ little, or that shows what another, quicker one shows as well. CI runs both.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

# Left to `make test-full`, but for the cases whose ids match one of the patterns.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    # Clusters and processes.
    "test_address__nobody_answers": (),
    "test_cache__a_second_process_needs_no_numba": (),
    "test_cache__nowhere_to_write": (),
    "test_fit__same_bits_in_a_store_and_on_a_cluster": ("marginal",),
    "test_full__a_real_disk": ("fit", "weights"),
    "test_full__every_verb": ("fit", "export", "weights"),
    "test_lazy__address_that_is_none": ("127.0.0.1:port",),
    "test_predict__behind_a_url": ("memory",),
    "test_same_bits__threads_and_any_number_of_workers": (),
    "test_stdout__full_is_an_error_because_the_result_is_lost": (),
    "test_workers__two_processes_make_the_same_store": (),
    "test_cache__a_user_without_a_home": (),
    "test_cache__damaged_files_are_written_again": (),
    "test_client__one_rule_for_every_call": ("fit", "spectral", "score", "predict", "predict_proba"),
    "test_compile__fills_the_cache_once": (),
    "test_fit__after_the_scheduler_was_killed": (),
    "test_fit__any_stage": ("*advance-1", "*best_of-1"),
    "test_frozen_worker__names_task_worker_and_remedy": ("wait_in_a_pass",),
    "test_in_a_real_notebook__one_view_that_ends_with_done": (),
    "test_killed__in_the_midst_of_a_partition": ("1",),
    "test_lazy__scheduler_that_does_not_answer": (),
    "test_lease__stores_that_race_for_one_place": ("memory",),
    "test_lease__writers_that_race_behind_s3": (),
    "test_local_cluster__ends_with_the_process": ("running",),
    "test_long_task__reports_while_it_works": (),
    "test_memory__of_workers_stays_below_the_plan": (),
    "test_task__killed_in_the_middle_is_resumed": ("select-6",),
    "test_permission__as_the_operating_system_says": (),
    "test_predict__killed_or_interrupted": ("2",),
    "test_run__cluster_that_is_not_there_and_damaged_store": (),
    "test_run__limit_of_seconds_then_status_then_new_sources_wait": (),
    "test_simulate__from_threads_and_from_processes": (),
    "test_single_thread__all_libraries": ("scipy.linalg",),
    "test_stderr__that_cannot_be_written_ends_no_fit": ("2>&- >&- <&--text",),
    "test_stdout__that_nobody_reads": (),
    "test_task_that_kills_its_workers__rows_worker_and_advice": ("memory",),
    "test_tls__a_fit_works_and_everybody_without_our_certificate_is_refused": (),
    "test_version__a_worker_that_joins_with_another_is_refused": ("other_kernel",),
    "test_worker__without_a_scheduler_gives_up_or_ends_when_told": (),
    "test_workers_and_scheduler_killed": (),
    "test_workers_join_and_leave__each_gets_work": (),
    # The same bits on a cluster, of fits whose bits test_frozen.py holds.
    "test_same_bits__newton_with_one_and_two_workers": (),
    "test_same_bits__on_threads_and_any_number_of_workers": (),
    "test_same_bits__one_and_four_workers": (),
    "test_same_bits__threads_chunks_and_workers": (),
    "test_same_bits__threads_stores_and_workers": (),
    "test_spectral_fit__digest_tells_fits_apart": (),
    "test_spectral_fit__same_bits": (),
    # Long waits for storage that does not answer.
    "test_refused_connection__a_store_error_with_the_url": (),
    "test_silent_endpoint__every_request_ends_with_the_url": (),
    # Many or large fits.
    "test_best_worst__equals_an_optimiser": ("maxdiff",),
    "test_bootstrap__agrees_with_the_sandwich": ("poisson",),
    "test_calibration__sweeps_keep_the_prior": ("ties and weights",),
    "test_completion__objective_within_one_percent_of_another_optimiser": (),
    "test_default__three_components_predict_better_than_one_on_50_short_rankings": (),
    "test_fit__resample_settles_near_the_exact_fit": (),
    "test_identity__gives_back_or_refuses": ("wide", "parquet", "preflib"),
    "test_noise__bootstrap_agrees_with_the_sandwich_and_holds_its_worths": (),
    "test_paper_model__start_is_near_the_truth": (),
    "test_pipeline__full_rankings_of_the_items_with_highest_variance": (),
    "test_posterior__as_metropolis_finds_it": (),
    "test_posterior__three_items_by_quadrature": ("slates and ties",),
    "test_posterior__two_items_is_a_beta": ("1.0",),
    "test_rows__partial_rankings": ("below",),
    "test_saved_state__em": ("mm-fused", "lsr-fused", "lsr-exact", "cml-exact"),
    "test_users_step__many_steps_solve_each_user_exactly": (),
    "test_a_default_fit_ends_no_lower_than_the_best_of_many_random_starts": ("1", "3"),
    "test_expected_wins__first_of_many_against_all_odds": ("30", "300"),
    "test_few_rows__converge_and_say_one_thing_once": ("0.1-50-*",),
    "test_fit__at_most_n_init_starts_reach_the_full_data": ("1",),
    "test_fit__objective_never_falls": ("lsr-exact-anderson", "mm-fused-plain"),
    "test_help__every_example_runs": (),
    "test_many_items_of_which_few_differ": (),
    "test_slates__an_independent_optimiser_gains_nothing": ("top 2", "choices"),
    "test_stationary__many_states": ("2001",),
}

# Files of which `make test` leaves out every test.
LEFT_OUT_FILES = ("test_report_browser.py",)

# A test that asks for one of these fixtures, or uses one of these names itself, starts processes or a cluster.
_PROCESS_FIXTURES = {
    *("breakable", "breakable_client", "client", "cluster"),
    *("python_says", "run_new_python", "run_python", "start"),
}
_PROCESS_NAMES = {"ForkedPython", "LocalCluster", "small_cluster", "subprocess"}

# How long examples take to be drawn tells how busy a machine is, and nothing about the code.
_SAME: dict[str, Any] = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=20, **_SAME)
settings.register_profile("full", max_examples=150, **_SAME)


def load_hypothesis_profile() -> str:
    """Load the profile that the environment variable HYPOTHESIS_PROFILE names; "quick" unless it is set."""
    name = os.environ.get("HYPOTHESIS_PROFILE", "quick")
    settings.load_profile(name)
    return name


def examples(number: int, **options: Any) -> settings:
    """At most this many examples; in the profile "quick" at most as many as it has."""
    quick = settings.get_profile("quick").max_examples
    most = number if settings.default.max_examples > quick else min(number, quick)
    return settings(max_examples=most, **options)


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark what the table names as `full`, and what starts processes as `process`."""
    for item in items:
        name, _, case = item.name.partition("[")
        left_out = name in LEFT_OUT and not any(fnmatchcase(case[:-1], kept) for kept in LEFT_OUT[name])
        if left_out or item.path.name in LEFT_OUT_FILES:
            item.add_marker(pytest.mark.full)
        if _starts_processes(item):
            item.add_marker(pytest.mark.process)


def _starts_processes(item: pytest.Item) -> bool:
    code = getattr(getattr(item, "function", None), "__code__", None)
    return not (
        _PROCESS_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        and _PROCESS_NAMES.isdisjoint(code.co_names if code else ())
    )
