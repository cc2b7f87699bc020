"""One module a stack; each is deployed after those that it takes values from."""
