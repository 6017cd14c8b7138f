"""Paired statistics of a comparison. Pure functions over arrays: no tables, no files, no Ray, no MLflow.

intervals   bootstrap over items for any function of column sums; engine starts as a second level
accuracy    Wilson, McNemar, the paired difference, equivalence, the verdict
explain     exact identities that say why one figure became another
family      Holm's correction, and which effects a set of variants can show
"""
