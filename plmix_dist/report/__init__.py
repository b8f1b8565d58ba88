"""One HTML file about a fitted mixture, for people who will never open Python."""

from plmix_dist.report.write import write_report

__all__ = ["write_report"]
