"""A Dagster asset: the model of the rankings in a store, fitted every night."""

# Annotations are not postponed here: Dagster looks at that of `context`.
import json
import os
import subprocess

import dagster

CONVERGED, NOT_CONVERGED = 0, 4


@dagster.asset(compute_kind="plmix", description="A mixture of Plackett-Luce models.")
def plackett_luce_model(context: dagster.AssetExecutionContext) -> dagster.MaterializeResult:
    """Run plmix in a process of its own: it needs nothing of Dagster's environment, and is ended with the run."""
    program, out = os.environ.get("PLMIX", "plmix"), os.environ["PLMIX_OUT"]
    # The job, in one line.
    job = [
        "fit",
        os.environ["PLMIX_STORE"],
        "--components",
        os.environ["PLMIX_COMPONENTS"],
        "--out",
        out,
        "--force",
    ]
    cluster = os.environ.get("PLMIX_CLUSTER", "--workers 0").split()
    done = subprocess.run([program, *job, *cluster, "--json"], capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        context.log.info(line)
    if done.returncode not in (CONVERGED, NOT_CONVERGED):
        raise dagster.Failure(f"plmix ended with code {done.returncode}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    return dagster.MaterializeResult(
        metadata={
            "converged": done.returncode == CONVERGED,
            "model": dagster.MetadataValue.path(out),
            "iterations": int(result["n_iter"]),
            "score": float(result["score"]),
        }
    )


nightly = dagster.ScheduleDefinition(
    job=dagster.define_asset_job("plackett_luce_nightly", selection=[plackett_luce_model]),
    cron_schedule="30 2 * * *",
)
definitions = dagster.Definitions(assets=[plackett_luce_model], schedules=[nightly])
