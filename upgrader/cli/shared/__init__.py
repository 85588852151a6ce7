"""What several commands share: reading the cluster, edits of a stack, consent, following a rollout.

Here: functions without click.
Not here: commands and options.
"""
