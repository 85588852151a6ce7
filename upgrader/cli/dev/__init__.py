"""`upgrader dev`, `demo`, `simulate`.

Here: the commands and their tables.
Not here: the embedded cluster, the demo and the simulator (devcluster, demo, simulate).
"""
