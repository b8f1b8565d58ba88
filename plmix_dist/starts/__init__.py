"""Where a fit begins: random, spectral and semidefinite-programming starts, made from a seeded sample of rows."""
