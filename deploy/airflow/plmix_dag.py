"""An Airflow DAG: the rankings are checked, then fitted, every night."""

from __future__ import annotations

import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="plmix_nightly",
    schedule="30 2 * * *",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": datetime.timedelta(minutes=10)},
) as dag:
    verify = BashOperator(
        task_id="verify", bash_command='"${PLMIX:-plmix}" verify "$PLMIX_STORE" --workers 0', append_env=True
    )
    fit = BashOperator(
        task_id="fit",
        # The job, in one line. PLMIX_CLUSTER is several words.
        bash_command=(
            '"${PLMIX:-plmix}" run "$PLMIX_JOB" '
            "${PLMIX_CLUSTER:---workers 0} || [ $? -eq 4 ]"  # 4: saved, and did not converge
        ),
        append_env=True,
        execution_timeout=datetime.timedelta(hours=6),
    )
    verify >> fit
