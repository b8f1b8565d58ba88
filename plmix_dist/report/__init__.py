"""One HTML file about a fitted mixture, for people who will never open Python.

- write: gathers what is known, fills the template, and writes the file
- components: what each component likes, and how certain memberships are, as numbers
- history: how the fit went, what to know before trusting it, and how the number of components was chosen
"""

from plmix_dist.report.write import write_report

__all__ = ["write_report"]
