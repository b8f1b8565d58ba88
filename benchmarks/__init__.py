"""Figures that the documentation quotes, each measured by one module and printed as a table."""
