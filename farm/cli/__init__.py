"""Arguments and the order of steps of each command."""
