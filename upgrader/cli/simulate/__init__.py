"""`upgrader simulate`.

Here: the command and its tables.
Not here: the simulation (upgrader.simulate).
"""
