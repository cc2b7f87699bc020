"""Reports: cost and attainment as tables and self-contained pages."""
