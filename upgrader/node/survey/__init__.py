"""Survey of a node: what would make an upgrade fail, found while jobs run. It reads, and changes nothing.

Here: one module for each part of a node, with the checks of that part.
Not here: checks of the images and files of one upgrade (upgrade/prepare.py).
"""
