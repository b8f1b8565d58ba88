"""How sure a fit is: standard errors from second derivatives, and the bootstrap."""
