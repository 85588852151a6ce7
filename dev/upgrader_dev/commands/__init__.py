"""`upgrader dev` and `upgrader demo`, which the command line loads by entry points.

Here: the commands and their tables.
Not here: the embedded cluster and the demo (devcluster, demo).
"""
