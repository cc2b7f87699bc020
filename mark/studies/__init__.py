"""The papers' experiments, our numbers beside the published ones."""
