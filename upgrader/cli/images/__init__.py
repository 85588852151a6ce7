"""`upgrader build` and `upgrader images`.

Here: the commands, their options and screens.
Not here: how images are built (upgrader/images).
"""
