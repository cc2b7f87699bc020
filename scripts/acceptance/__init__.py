"""Figures on real traces: `make acceptance`, `make forecast-figures`, `make fidelity`."""
