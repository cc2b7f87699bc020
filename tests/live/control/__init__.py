"""The acting controller's parts."""
