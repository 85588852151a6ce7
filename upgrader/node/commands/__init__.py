"""The commands of `python -m upgrader.node`, a module each with a function `main`.

Only the module of the command that runs is imported: on a slow node loading what others need took longer than the work.
"""
