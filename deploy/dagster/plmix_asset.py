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
    program = os.environ.get("PLMIX", "plmix")
    # The job, in one line.
    job = ["run", os.environ["PLMIX_JOB"]]
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
            "model": dagster.MetadataValue.path(f"{result['folder']}/model"),
            "changed": bool(result["changed"]),
            "iterations": int(result["fit"]["n_iter"]),
            "score": float(result["fit"]["score"]),
        }
    )


nightly = dagster.ScheduleDefinition(
    job=dagster.define_asset_job("plackett_luce_nightly", selection=[plackett_luce_model]), cron_schedule="30 2 * * *"
)
definitions = dagster.Definitions(assets=[plackett_luce_model], schedules=[nightly])
