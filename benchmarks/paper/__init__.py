"""The experiments of Nguyen & Zhang (AAAI 2023) again, all methods on one engine, and its theory by simulation.

`python -m benchmarks.paper NAME [--quick | --released | --paper]`. One file per experiment; `frame.py` runs them, keeps
what is done, and goes on where it was stopped. To add a method to all of them, add it to `methods.py`.
"""
