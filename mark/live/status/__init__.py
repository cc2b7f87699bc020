"""What a service says of itself: one document, and the commands that show it."""
