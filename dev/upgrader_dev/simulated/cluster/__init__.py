"""A simulated cluster in virtual time: the real reconcilers on the fake API server, with simulated nodes and jobs."""
