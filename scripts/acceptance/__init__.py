"""Figures on real traces: `make acceptance`, `make fidelity`."""
