"""What can be asked: models, loading, the catalogue of optimisations, identity."""
