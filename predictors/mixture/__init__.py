"""The online mixture of all experts, and the recalibration of its quantiles."""
