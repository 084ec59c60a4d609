"""The report: charts, tables and cards for notebooks and chapters, artefacts, and the stitched report in
three formats.
"""
