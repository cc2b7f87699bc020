"""Studies of Fang et al. (CIKM 2017): schedulers that weigh quality against delay, on one device and on ten."""
