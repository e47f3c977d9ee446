"""Sets the service up, steps aside, and takes it down again: command line, doctor, supervisor."""
