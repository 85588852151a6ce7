"""The jobs on nodes: gangs of pods, their owners, their declarations, their suspension and their placement.

Here: one file for each topic; a new kind of owner is a row in owner_kinds.
Not here: whether a gang may be stopped now (constraints), and how it is stopped (checkpoint_request).
"""
