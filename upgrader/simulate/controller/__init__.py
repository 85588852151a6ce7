"""What the controller does, over virtual time: the same forecast and the same decisions, on state that is simulated."""
