"""The commands of `python -m upgrader_dev.node`: one module each, with a function `main`.

Only the module of the command is imported, as in upgrader.node.
"""
