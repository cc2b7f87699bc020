"""The words of money: what was used, what it costs, and what may be spent."""
