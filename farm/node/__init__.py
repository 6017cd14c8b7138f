"""On an engine's node: the slot, its launcher, prompts made into tokens, record assembly, telemetry."""
