"""Pure: which request where, in which batch. Hot decisions take scalars and arrays, never objects."""
