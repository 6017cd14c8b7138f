"""How a comparison is shown. Every view takes the dictionary that `farm.compare.compare` returns.

safe       model output and names are untrusted: made harmless for terminal, HTML, Markdown and CSV
cells      the cells of the comparison table, the same in every view
terminal, markdown, csv_file, json_file   one view each
report     the HTML report, with its plots and the flips: questions that one variant answers right and another does not
"""
