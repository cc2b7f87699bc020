"""The forecaster of bursts that come by the clock, or some time after the last one."""
