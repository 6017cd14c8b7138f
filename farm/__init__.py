"""An evaluation farm: does a decoding optimisation pay off on your DGX Sparks and your workload, and how sure is it?"""

__version__ = "0.1.0"
