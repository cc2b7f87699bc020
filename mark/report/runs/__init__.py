"""Replays beside one another: table, page, plots, document; and why the controller did what it did."""
