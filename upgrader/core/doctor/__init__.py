"""Checks of `upgrader doctor` and `upgrader lint`: rights, other operators, declarations of jobs.

Here: findings with advice, from values.
Not here: reading the cluster (upgrader/cli).
"""
