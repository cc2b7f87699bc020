"""Other people's simulators, with our policies in them: how to run each stands in docs/papers.md."""
