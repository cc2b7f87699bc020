"""Prices and profiles as dated files, and the offerings made of them."""
