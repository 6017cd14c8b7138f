"""How a comparison is shown. Every view takes the `Comparison` that `farm.compare.compare` returns.

columns    the one table of figures: name, unit, definition, format and source of each
cells      the cells of the comparison table, the same in every view
terminal, markdown, csv_file, json_file   one view each
html       the report, laid out by `report.html.jinja`, with its plots and the flips: questions that one
           variant answers right and another does not
"""
