"""Load beside demand itself: what arrived, of which sizes, and what is announced."""
