"""The jobs on a node: which pods are one gang, who owns it, what it declares, how it is suspended and placed again.

Here: one file for each question; a new kind of owner is a row in owner_kinds.
Not here: whether a gang may be stopped now (constraints), and how it is stopped (checkpoint_request).
"""
