"""`upgrader doctor` and `preflight`.

Here: the commands, their reads, their screens.
Not here: the checks (core.doctor).
"""
