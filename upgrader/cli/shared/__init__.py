"""Shared by several commands: reads of the cluster, edits of a stack, approvals, progress of a rollout.

Here: functions without click.
Not here: commands and options.
"""
