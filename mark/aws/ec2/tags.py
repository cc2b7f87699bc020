"""Tags of a service's instances."""

from __future__ import annotations

SERVICE, OWNER, MODEL, OFFERING, ROLE, TOKEN, RUN, VERSION, MODEL_VERSION = (
    "mark:service",
    "mark:owner",
    "mark:model",
    "mark:offering",
    "mark:role",
    "mark:token",
    "mark:run",
    "mark:version",
    "mark:model-version",
)
ENDS = "mark:ends"
"""Tag of a group of nodes: when the service ends."""
PROFILE_OF, EXPIRES = "mark:profile-of", "mark:expires"
"""Tags of an instance of no fleet (`rent_instance.py`): the model that it serves, and when it ends (epoch s)."""
