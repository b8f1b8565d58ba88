"""The road to a Dask cluster, and its care.

- clients: which cluster computes, for every argument named `client`; Dask's dashboard and performance report
- executor: one function over many tasks, in threads or on a cluster that `--scheduler`, `--workers` and the like name
- submission: work is submitted and waited for; every fault becomes a ClusterError
- watch: whether anything still happens on a cluster from which nothing comes; threads inside a task, and their reports
- tls: encryption, and certificates for development
- services: schedulers and workers that run until a signal ends them
- health: whether this installation and a cluster are fit for work
"""
