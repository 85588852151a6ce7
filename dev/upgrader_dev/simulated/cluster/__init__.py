"""A simulated cluster in virtual time: the real reconcilers on the fake API server, beside nodes, jobs and others."""
