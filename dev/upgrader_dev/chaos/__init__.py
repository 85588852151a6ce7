"""Chaos: seeded rollouts in the simulated cluster with faults at every port, judged by the laws.

A run depends on its seed and on nothing else, so a seed that fails is run again alone with the same result.
"""
