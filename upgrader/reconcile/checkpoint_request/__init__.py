"""The CheckpointRequest: one step of it, the owners that it suspends and resumes, requests that nothing leads any more.

Here: reading one gang, performing what core.checkpoint_request decides, recording it.
Not here: nodes.
"""
