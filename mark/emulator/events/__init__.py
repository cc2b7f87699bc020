"""The emulated EventBridge: events, where they come from, schedules and alarms."""
