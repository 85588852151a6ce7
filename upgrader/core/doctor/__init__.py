"""What `upgrader doctor` and `upgrader lint` check: rights, other operators, jobs that declare nothing or too much.

Here: findings with advice, from values.
Not here: reading the cluster (upgrader/cli).
"""
