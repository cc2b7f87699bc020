"""Forecasters beside one another: table, page, plots, document."""
