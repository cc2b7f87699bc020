"""Commands of the project's developers, run by `make`."""
