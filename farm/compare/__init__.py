"""`python -m farm.compare`: which variant to deploy, how much faster it is, whether accuracy moved, how sure that is.

load       where the records of a sweep are found
sample     one workload, resampled once for all its figures
figures    the figures of one variant
contrasts  one variant against another, and factorial effects
costs      start-up seconds against seconds saved
advice     what to do, in words that follow from the intervals by rule
why        what makes a variant as fast as it is, in sentences that add up
caveats    what changes how a number is read
words      how numbers read, the same in every view
assemble   all of it as the dictionary of the JSON contract: `compare`
"""

from farm.compare.assemble import compare

__all__ = ["compare"]
