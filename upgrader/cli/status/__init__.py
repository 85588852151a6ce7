"""`upgrader status`, and following a rollout.

Here: the command, what it reads, its screens.
Not here: what the status says (reconcile).
"""
