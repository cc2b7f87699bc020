"""The controller that acts: its lease, its term, and the store of a node, which follows the lease."""
