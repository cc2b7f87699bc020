"""The processes of a live service, one module each: `python -m mark.live.processes.NAME FOLDER`."""
