"""Reading rankings from files, URLs and arrays into a store, in parallel."""

from plmix_dist.ingestion.driver import ingest

__all__ = ["ingest"]
