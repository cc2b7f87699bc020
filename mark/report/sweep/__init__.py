"""The fronts of a sweep: table, page, plot, document."""
