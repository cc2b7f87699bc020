"""Lambda: functions, calls of them as overflow, and warm-up pings."""
