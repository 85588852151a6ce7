"""`upgrader approve`, `pause`, `resume`, `abort`, `rollback`, `force`, `checkpoint`.

Here: the commands and the changes that they write.
Not here: the reconciliation of these changes.
"""
