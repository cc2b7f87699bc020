"""AWS Lambda handlers, one file a trigger: `infer` answers, `warm` pings, `interruption` passes events on."""
