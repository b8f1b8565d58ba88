"""Where a fit begins.

settings    starts as values, and FitSettings: how the starts of a fit are made
make        the starts of a fit by any of them, and further ones for a search
spectral    from a sample: embeddings, singular vectors and how many, clusters and their worths
paper       the same from all rows, as published
kernel      by a similarity of rankings and semidefinite programming (sdp)
moments     by the frequencies of the first three places
"""
