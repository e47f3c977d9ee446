"""Where a request's CPU goes: samples of stacks by layer, and counts of events."""
