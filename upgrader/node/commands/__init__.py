"""The commands of `python -m upgrader.node`: one module each, with a function `main`.

Only the module of the command is imported: on a slow node, imports for other commands took longer than the command.
"""
