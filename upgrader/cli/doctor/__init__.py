"""`upgrader doctor` and `preflight`.

Here: the commands, what they read, their screens.
Not here: what is judged (core.doctor).
"""
