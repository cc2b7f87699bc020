"""Forecasters on a trace: trained, shown, backtested, each within its time."""
