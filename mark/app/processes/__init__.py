"""The processes of a live service, one module each: `python -m mark.app.processes.NAME FOLDER`."""
