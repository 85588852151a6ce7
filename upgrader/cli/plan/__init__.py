"""`upgrader plan`, `apply`, `drift`, `why`.

Here: the commands, their options, their screens and their actions.
Not here: the forecast itself (core.forecast).
"""
