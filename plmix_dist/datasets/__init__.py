"""Verbs on data: what makes, reads, divides and inspects stores, and what turns users' data into leaves for a fit.

ingest.py reads sources into a store, by plan.py (parts of files and arrays, items, counts); simulate.py and split.py
write stores; examples.py has made-up rankings with names; export.py writes files and shows a store as an xarray
Dataset; inspect.py has verify() and info(); ratings/ turns tables of ratings into rankings; given.py makes leaves of
whatever a user hands to fit().
"""
