"""`upgrader dev`, `demo`, `simulate`.

Here: the commands and their tables.
Not here: what they run (devcluster, demo, simulate).
"""
