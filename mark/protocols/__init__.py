"""What is said on the wires, as pure functions: inference protocols, frames, events and queue messages."""
