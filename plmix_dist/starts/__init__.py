"""Where a fit begins: random, spectral and kernel starts, made from a seeded sample of the rows."""
