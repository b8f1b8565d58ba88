"""Ratings to rankings: tables of users, items and ratings, filtered, completed, and written as rankings.

ingest.py is ingest_ratings(); shuffle.py reads rows and sorts them by user into scratch files; leaf.py has all ratings
of some users; selection.py filters and chooses items; completion.py fits factors to the ratings that are there.
"""
