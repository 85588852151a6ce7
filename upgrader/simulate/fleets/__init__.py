"""Fleets of `upgrader simulate`.

Here: the fleet as values, the parser of fleet files, and fleets drawn from a seed.
Not here: the simulated cluster and its controller (world, controller).
"""
