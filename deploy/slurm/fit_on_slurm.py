"""A fit on workers that dask-jobqueue submits to Slurm, over TLS: python fit_on_slurm.py STORE COMPONENTS MODEL."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster
from distributed import Client, Security

import plmix_dist as plm


def main(store: str, n_components: int, model: str) -> None:
    """Fit on two to eight jobs of Slurm and save the model. The same command goes on where one was stopped."""
    tls = Path(os.environ.get("PLMIX_TLS", Path.home() / "plmix-tls"))
    roles = ("client", "scheduler", "worker")
    security = Security(
        tls_ca_file=str(tls / "ca.pem"),
        require_encryption=True,
        **{f"tls_{role}_cert": str(tls / "cert.pem") for role in roles},
        **{f"tls_{role}_key": str(tls / "key.pem") for role in roles},
    )
    cluster = SLURMCluster(
        cores=int(os.environ.get("PLMIX_THREADS", "16")),
        memory=os.environ.get("PLMIX_MEMORY", "60GB"),
        processes=1,
        walltime="06:00:00",
        interface=os.environ.get("PLMIX_INTERFACE", "ib0"),
        protocol="tls://",
        security=security,
        python=sys.executable,
        # The dashboard has no password: this machine only.
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
        log_directory=os.environ.get("PLMIX_LOGS", "plmix-logs"),
    )
    with cluster, Client(cluster) as client:
        # Jobs that Slurm ends are submitted again.
        cluster.adapt(minimum_jobs=2, maximum_jobs=8)
        client.wait_for_workers(2, timeout=float(os.environ.get("PLMIX_WAIT", "3600")))
        mixture = plm.PlackettLuceMixture(n_components, random_state=0, checkpoint=f"{model}-checkpoints")
        mixture.fit(store, client=client).save(model)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
