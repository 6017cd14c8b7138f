"""`python -m farm.compare`: which variant to deploy, how much faster it is, whether accuracy moved, how sure that is.

load       where the records of a sweep are found
sample     one workload, resampled once for all its figures
figures    the figures of one variant
contrasts  one variant against another, and factorial effects
costs      start-up seconds against seconds saved
advice     what to do, in words that follow from the intervals by rule
why        what makes a variant as fast as it is, in sentences that add up
warnings   what changes how a number is read
words      how numbers read, the same in every view
published  published figures beside the measured ones
model      the `Comparison` that all of it becomes, the contract of `--format json`
assemble   records in, a `Comparison` out: `compare`
"""

from farm.compare.assemble import compare, figures_alone

__all__ = ["compare", "figures_alone"]
