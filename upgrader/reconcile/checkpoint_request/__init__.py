"""Reconciliation of a CheckpointRequest: its step, the owners that it suspends and resumes, abandoned requests.

Here: reading one gang, performing and recording the decisions of core.checkpoint_request.
Not here: nodes.
"""
