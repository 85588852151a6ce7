"""`upgrader approve`, `pause`, `resume`, `abort`, `rollback`, `force`, `checkpoint`.

Here: the commands, and what each writes.
Not here: what becomes of it (reconcile).
"""
