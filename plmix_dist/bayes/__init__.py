"""Draws from the posterior of a mixture: sampled, relabelled, diagnosed, compared by criteria."""
