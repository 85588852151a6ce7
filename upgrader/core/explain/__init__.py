"""Explanations for users: why a node or gang is upgraded or not, the saved plan file, and what changed since.

Here: sentences built from decisions.
Not here: decisions.
"""
