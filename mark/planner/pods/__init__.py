"""Pods and nodes of the rivals that a Kubernetes cluster runs."""
