"""Rivals that serve several models: pods on the nodes of a Kubernetes cluster, and a multi-model endpoint."""
