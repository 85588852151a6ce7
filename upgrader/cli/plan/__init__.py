"""`upgrader plan`, `apply`, `drift`, `why`.

Here: the commands, their options, their screens, and what they do.
Not here: the forecast itself (core.forecast).
"""
