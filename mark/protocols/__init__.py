"""Wire formats as pure functions: inference protocols, frames, events and queue messages."""
