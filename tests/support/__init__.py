"""What several test folders share: fakes of the ports, builders of values, places in the repository."""
