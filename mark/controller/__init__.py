"""One tick: what is seen becomes orders with reasons, and a journal that can be replayed."""
