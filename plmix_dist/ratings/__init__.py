"""Ratings to rankings: tables of users, items and ratings, filtered, completed, and written as rankings."""

from plmix_dist.ratings.driver import ingest_ratings

__all__ = ["ingest_ratings"]
