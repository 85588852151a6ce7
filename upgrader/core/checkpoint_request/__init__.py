"""The CheckpointRequest: its state machine, acknowledgements, and who may write to a storage now.

Here: decisions on one gang, from values.
Not here: reading gangs and writing to them (upgrader/checkpoint, reconcile/checkpoint_request).
"""
