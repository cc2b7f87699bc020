"""A service of several models replayed: its verdict, tables, document and page."""
