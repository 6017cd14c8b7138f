"""What is asked of an engine: items with stable ids, made from a workload's settings."""
