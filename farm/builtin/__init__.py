"""Data and models that come along: the demo model, gsm-mini, published figures, generators of small models."""
