"""Explanations for users: why a node or gang is upgraded or not, what a kept plan file says, what changed since.

Here: sentences made of decisions.
Not here: decisions.
"""
