"""The report: charts, tables and cards, artefacts, and the stitched report in three formats."""
