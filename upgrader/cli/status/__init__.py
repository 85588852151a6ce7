"""`upgrader status`, and following a rollout.

Here: the command, its reads, its screens.
Not here: the computation of the status (reconcile).
"""
