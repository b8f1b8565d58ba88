"""The only numba: kernels, and the parts that they are made of.

A kernel is a function that Python calls: it takes the fields of structures and returns nothing. A part is a function
that kernels call, once per row or more often. Imported only where a kernel is compiled.
"""
