"""`upgrader build` and `upgrader images`.

Here: the commands, their options and screens.
Not here: the build of images (upgrader/images).
"""
