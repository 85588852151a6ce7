"""Nodes that are API objects only.

Here: their objects.
Not here: the stages by which kwok changes them (control_plane).
"""
